"""What every evaluator that needs no GPU promises."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bo_tuner.evaluators.base import Evaluator, FailingEvaluator, NoisyEvaluator
from bo_tuner.evaluators.journal import JournalEvaluator
from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.study import Measurement
from tests.toy_prior import target

EVALUATORS: dict[str, Callable[[], Evaluator]] = {
    "replay": lambda: ReplayEvaluator(target()),
    "noisy": lambda: NoisyEvaluator(ReplayEvaluator(target()), 0.05, 1),
    "journal": lambda: JournalEvaluator(ReplayEvaluator(target()), Path(tempfile.mkdtemp()) / "journal.jsonl", {}),
    "failing": lambda: FailingEvaluator(ReplayEvaluator(target()), 0.5, 1),
}
pytestmark = pytest.mark.parametrize("make", EVALUATORS.values(), ids=EVALUATORS.keys())


def test_every_config_gets_a_measurement(make: Callable[[], Evaluator]) -> None:
    evaluator = make()
    for config in target().pool:
        measurement = evaluator.evaluate(config)
        assert isinstance(measurement, Measurement)
        assert measurement.ok == bool(measurement.readings_us)
        assert measurement.compile_s >= 0


def test_equal_seeds_measure_equally(make: Callable[[], Evaluator]) -> None:
    first, second = make(), make()
    assert [first.evaluate(config) for config in target().pool] == [second.evaluate(config) for config in target().pool]


def test_a_config_can_be_measured_again(make: Callable[[], Evaluator]) -> None:
    evaluator = make()
    config = target().pool.config(1)
    for _ in range(3):
        evaluator.evaluate(config)
