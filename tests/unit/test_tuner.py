from __future__ import annotations

import statistics

import pytest

from bo_tuner.errors import UserError
from bo_tuner.evaluators.base import FailingEvaluator, NoisyEvaluator
from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.searchers import make_searcher
from bo_tuner.searchers.base import Searcher
from bo_tuner.space import config_key
from bo_tuner.study import Measurement, Status, Study, Trial
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


def searched(confirm: int, log_sd: float = 0.05, **more: float) -> Study:
    task = target().task
    evaluator = NoisyEvaluator(ReplayEvaluator(target()), log_sd, 7)
    searcher = make_searcher("meta_gp", SPEC, task, prior=toy_prior())
    return tune(task, searcher, evaluator, 12, confirm=confirm, **more)


def test_the_last_trials_time_the_best_configs_again() -> None:
    study = searched(confirm=2)
    assert len(study.trials) == 12
    search, again = study.trials[:10], study.trials[10:]
    first = sorted(search, key=lambda trial: trial.measurement.time_us)[:2]
    assert [trial.config for trial in again] == [trial.config for trial in first]
    assert [trial.index for trial in study.trials] == list(range(12))
    assert again[0].measurement != first[0].measurement


def test_the_best_is_chosen_by_all_readings_of_a_config() -> None:
    study = searched(confirm=2)
    pooled: dict[str, list[float]] = {}
    for trial in study.trials:
        pooled.setdefault(config_key(trial.config), []).extend(trial.measurement.readings_us)
    fastest = min(pooled, key=lambda key: statistics.median(pooled[key]))
    assert study.best is not None
    assert config_key(study.best.config) == fastest
    assert study.best.measurement.time_us == statistics.median(pooled[fastest])
    assert list(study.incumbents())[-1] == study.best


def test_confirmation_finds_out_a_lucky_reading() -> None:
    """Seeds where one lucky reading decided: confirmed choices are better on average."""
    table, reached = target(), {0: [], 2: []}
    for seed in range(12):
        for confirm, found in reached.items():
            searcher = make_searcher("random", SPEC, table.task, seed=seed)
            best = tune(
                table.task, searcher, NoisyEvaluator(ReplayEvaluator(table), 0.2, seed), 40, confirm=confirm
            ).best
            assert best is not None
            found.append(table.efficiency(table.pool.index(best.config)))
    assert statistics.mean(reached[2]) > statistics.mean(reached[0])


def test_ending_early_leaves_trials_for_confirmation() -> None:
    study = searched(confirm=2, log_sd=0.0, min_gain=0.02)
    assert 4 <= len(study.trials) < 12
    assert study.n_saved == 12 - len(study.trials)
    assert {config_key(trial.config) for trial in study.trials[-2:]} <= {
        config_key(trial.config) for trial in study.trials[:-2]
    }
    assert study.best is not None
    assert len(study.best.measurement.readings_us) == 2
    assert searched(confirm=0).n_saved == 0


def test_a_config_that_fails_when_tried_again_is_not_chosen() -> None:
    table = target()
    configs = [table.pool.config(row) for row in (0, 1)]
    fast, slow = Measurement(Status.CORRECT, (1.0,)), Measurement(Status.CORRECT, (2.0,))
    results = [(0, fast), (1, slow), (0, Measurement(Status.RUNTIME))]
    study = Study(table.task, "", 0, tuple(Trial(at, configs[row], one) for at, (row, one) in enumerate(results)))
    assert study.best is not None
    assert study.best.config == configs[1]
    assert [best.config if best else None for best in study.incumbents()] == [configs[0], configs[0], configs[1]]


def test_confirmation_needs_a_search() -> None:
    for confirm in (-1, 12):
        with pytest.raises(UserError, match="confirm"):
            searched(confirm=confirm)
