from __future__ import annotations

import pytest

from bo_tuner.errors import UserError
from bo_tuner.evaluators.base import FailingEvaluator
from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.searchers import make_searcher
from bo_tuner.searchers.base import Searcher
from bo_tuner.study import Trial
from bo_tuner.tuner import tune
from tests.toy_prior import SPEC, target, toy_prior


def random_searcher(seed: int = 0) -> Searcher:
    return make_searcher("random", SPEC, target().task, seed=seed)


def test_spends_the_budget_and_tells_callbacks() -> None:
    heard: list[Trial] = []
    study = tune(
        target().task, random_searcher(), ReplayEvaluator(target()), 7, method="random", callbacks=[heard.append]
    )
    assert len(study.trials) == 7
    assert tuple(heard) == study.trials
    assert [trial.index for trial in study.trials] == list(range(7))
    assert study.method == "random"
    assert all(trial.ask_s >= 0 for trial in study.trials)


def test_failures_count() -> None:
    evaluator = FailingEvaluator(ReplayEvaluator(target()), 1.0, 0)
    study = tune(target().task, random_searcher(), evaluator, 5)
    assert len(study.trials) == 5
    assert study.best is None


def test_the_best_measured_config_is_chosen() -> None:
    study = tune(target().task, random_searcher(), ReplayEvaluator(target()), 30)
    assert study.best is not None
    assert study.best.measurement.time_us == min(trial.measurement.time_us for trial in study.trials)


def test_an_exhausted_space_ends_the_run() -> None:
    table = target()
    study = tune(table.task, random_searcher(), ReplayEvaluator(table), len(table) + 50)
    assert len(study.trials) == len(table)


@pytest.mark.parametrize("budget", [0, -3])
def test_budget_below_one(budget: int) -> None:
    with pytest.raises(UserError, match="budget"):
        tune(target().task, random_searcher(), ReplayEvaluator(target()), budget)


def test_ends_early_when_another_trial_promises_too_little() -> None:
    task = target().task
    whole, short = (
        tune(
            task, make_searcher("meta_gp", SPEC, task, prior=toy_prior()), ReplayEvaluator(target()), 20, min_gain=gain
        )
        for gain in (0.0, 0.02)
    )
    assert 1 <= len(short.trials) < len(whole.trials) == 20
    assert [trial.config for trial in short.trials] == [trial.config for trial in whole.trials[: len(short.trials)]]


def test_what_a_trial_promises_is_told_by_who_knows_it() -> None:
    with pytest.raises(UserError, match="min_gain: random cannot tell"):
        tune(target().task, random_searcher(), ReplayEvaluator(target()), 5, method="random", min_gain=0.01)
    with pytest.raises(UserError, match=r"min_gain: 1\.5 is not"):
        tune(target().task, random_searcher(), ReplayEvaluator(target()), 5, min_gain=1.5)
