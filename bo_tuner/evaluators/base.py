"""The one thing an evaluator does, and wrappers that add noise and failures to any of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from bo_tuner.errors import UserError
from bo_tuner.space import Config
from bo_tuner.study import Measurement, Status


class Evaluator(Protocol):
    """Measures one config. What goes wrong with the config is a status of the result, never an exception."""

    def evaluate(self, config: Config) -> Measurement:
        """Measure a valid config of the evaluator's task."""
        ...


@dataclass
class NoisyEvaluator:
    """Multiplies every reading by log-normal noise.

    Args:
        inner: what measures.
        log_sd: standard deviation of the log factor, not negative; 0.01 is about 1 %.
        seed: of the noise.
    """

    inner: Evaluator
    log_sd: float
    seed: int
    _rng: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.log_sd) and self.log_sd >= 0):
            raise UserError(f"log_sd: {self.log_sd} is not a number of at least 0")
        self._rng = np.random.default_rng(self.seed)

    def evaluate(self, config: Config) -> Measurement:
        """Measure, then disturb the readings one by one."""
        measurement = self.inner.evaluate(config)
        factors = np.exp(self.log_sd * self._rng.standard_normal(len(measurement.readings_us)))
        return replace(
            measurement,
            readings_us=tuple(float(us * by) for us, by in zip(measurement.readings_us, factors, strict=True)),
        )


@dataclass
class FailingEvaluator:
    """Lets a share of the trials fail.

    Args:
        inner: what measures the others.
        share: probability of a failure, from 0 to 1.
        seed: of the draw.
        status: how a failed trial ends.
    """

    inner: Evaluator
    share: float
    seed: int
    status: Status = Status.RUNTIME
    _rng: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UserError(f"share: {self.share} is not between 0 and 1")
        if self.status is Status.CORRECT:
            raise UserError("status: a failure cannot be 'correct'")
        self._rng = np.random.default_rng(self.seed)

    def evaluate(self, config: Config) -> Measurement:
        """Measure, or fail without measuring."""
        if self._rng.random() < self.share:
            return Measurement(self.status, message="injected failure")
        return self.inner.evaluate(config)
