"""What every search method promises."""

from __future__ import annotations

import math

import pytest

from bo_tuner.evaluators.base import FailingEvaluator, NoisyEvaluator
from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.searchers import make_searcher, method_names, needs_prior
from bo_tuner.searchers.base import Foresighted, Searcher, SpaceExhausted
from bo_tuner.study import Measurement, Status, Trial
from bo_tuner.tuner import tune
from tests.toy_prior import SPEC, replay, target, toy_prior

POOL = target().pool
pytestmark = pytest.mark.parametrize("method", method_names())


def make(method: str, seed: int = 0) -> Searcher:
    return make_searcher(method, SPEC, target().task, seed=seed, prior=toy_prior() if needs_prior(method) else None)


def test_twenty_trials_are_twenty_distinct_valid_configs(method: str) -> None:
    study = replay(make(method), 20)
    rows = {POOL.index(trial.config) for trial in study.trials}
    assert len(rows) == 20
    assert all(SPEC.space.why_invalid(trial.config, target().task) is None for trial in study.trials)


def test_a_seed_gives_the_same_run(method: str) -> None:
    first, second = (replay(make(method, seed=3), 8) for _ in range(2))
    assert [trial.config for trial in first.trials] == [trial.config for trial in second.trials]


def test_asking_again_without_telling_changes_nothing(method: str) -> None:
    searcher = make(method)
    replay(searcher, 6)
    assert searcher.ask() == searcher.ask()


def test_what_it_expects_to_gain_falls_from_infinity_to_nothing(method: str) -> None:
    searcher = make(method)
    if not isinstance(searcher, Foresighted):
        pytest.skip("says nothing of that")
    assert searcher.expected_gain() == math.inf
    replay(searcher, 8)
    assert 0 <= searcher.expected_gain() < 1
    replay(searcher, len(POOL))
    assert searcher.expected_gain() == 0


def test_all_trials_may_fail(method: str) -> None:
    study = tune(target().task, make(method), FailingEvaluator(ReplayEvaluator(target()), 1.0, 0), 12)
    assert len({POOL.index(trial.config) for trial in study.trials}) == 12
    assert study.best is None


def test_noise_and_failures_are_survived(method: str) -> None:
    evaluator = FailingEvaluator(NoisyEvaluator(ReplayEvaluator(target()), 0.3, 1), 0.4, 2)
    study = tune(target().task, make(method), evaluator, 15)
    assert len({POOL.index(trial.config) for trial in study.trials}) == 15


def test_equal_times_are_survived(method: str) -> None:
    class Constant:
        def evaluate(self, config: object) -> Measurement:
            return Measurement(Status.CORRECT, (10.0,))

    study = tune(target().task, make(method), Constant(), 10)
    assert len({POOL.index(trial.config) for trial in study.trials}) == 10


def test_what_it_is_told_it_does_not_ask(method: str) -> None:
    searcher = make(method)
    asked = searcher.ask()
    searcher.tell(Trial(0, asked, Measurement(Status.CORRECT, (10.0,))))
    assert POOL.index(searcher.ask()) != POOL.index(asked)


def test_it_stops_when_everything_is_tried(method: str) -> None:
    searcher = make(method)
    for row in range(len(POOL) - 2):
        status = Measurement(Status.CORRECT, (10.0,)) if row < 5 else Measurement(Status.TIMEOUT)
        searcher.tell(Trial(row, POOL.config(row), status))
    left = set()
    for row in range(len(POOL) - 2, len(POOL)):
        config = searcher.ask()
        left.add(POOL.index(config))
        searcher.tell(Trial(row, config, Measurement(Status.TIMEOUT)))
    assert left == {len(POOL) - 2, len(POOL) - 1}
    with pytest.raises(SpaceExhausted):
        searcher.ask()
