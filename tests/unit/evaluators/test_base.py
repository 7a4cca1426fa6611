from __future__ import annotations

import pytest

from bo_tuner.errors import UserError
from bo_tuner.evaluators.base import FailingEvaluator, NoisyEvaluator
from bo_tuner.space import Config
from bo_tuner.study import Measurement, Status


class Fixed:
    def evaluate(self, config: Config) -> Measurement:
        return Measurement(Status.CORRECT, (10.0, 12.0), compile_s=1.0)


def test_noise_is_seeded_and_keeps_the_rest() -> None:
    a, b, c = (NoisyEvaluator(Fixed(), 0.1, seed).evaluate({}) for seed in (1, 1, 2))
    assert a == b != c
    assert a.compile_s == 1.0
    assert len(a.readings_us) == 2
    assert a.readings_us != (10.0, 12.0)


def test_no_noise_changes_nothing() -> None:
    assert NoisyEvaluator(Fixed(), 0.0, 1).evaluate({}).readings_us == (10.0, 12.0)


def test_failing_share() -> None:
    always, never = FailingEvaluator(Fixed(), 1.0, 0), FailingEvaluator(Fixed(), 0.0, 0)
    assert always.evaluate({}).status is Status.RUNTIME
    assert never.evaluate({}).ok
    half = FailingEvaluator(Fixed(), 0.5, 3, Status.COMPILE)
    statuses = {half.evaluate({}).status for _ in range(40)}
    assert statuses == {Status.CORRECT, Status.COMPILE}


@pytest.mark.parametrize("log_sd", [-0.1, float("nan")])
def test_bad_noise(log_sd: float) -> None:
    with pytest.raises(UserError, match="log_sd"):
        NoisyEvaluator(Fixed(), log_sd, 0)


def test_bad_failures() -> None:
    with pytest.raises(UserError, match="share"):
        FailingEvaluator(Fixed(), 1.5, 0)
    with pytest.raises(UserError, match="status"):
        FailingEvaluator(Fixed(), 0.5, 0, Status.CORRECT)
