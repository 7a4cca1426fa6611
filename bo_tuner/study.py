"""What a tuning run produced: plain frozen data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bo_tuner.space import Config, config_key
from bo_tuner.task import Task

if TYPE_CHECKING:
    import pandas as pd


class Status(StrEnum):
    """How a trial ended, in the words of the T4 results schema of Kernel Tuner."""

    CORRECT = "correct"
    CONSTRAINTS = "constraints"
    COMPILE = "compile"
    RUNTIME = "runtime"
    CORRECTNESS = "correctness"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class Measurement:
    """What a trial returned. ``readings_us`` are kernel times in microseconds, none unless the status is correct.

    ``compile_s`` is the time the compiler took for this config, apart from every timing; 0 where nothing was
    compiled or (in replay) where it was compiled before.
    """

    status: Status
    readings_us: tuple[float, ...] = ()
    compile_s: float = 0.0
    message: str = ""

    def __post_init__(self) -> None:
        if (self.status is Status.CORRECT) != bool(self.readings_us):
            raise ValueError(f"a measurement has readings if and only if it is correct, got {self.status.value}")
        if not all(math.isfinite(reading) and reading > 0 for reading in self.readings_us):
            raise ValueError(f"readings_us must be finite and positive, got {self.readings_us}")

    @property
    def ok(self) -> bool:
        return self.status is Status.CORRECT

    @property
    def time_us(self) -> float:
        """Median reading; infinite when the trial failed."""
        return statistics.median(self.readings_us) if self.ok else math.inf


@dataclass(frozen=True)
class Trial:
    """One config handed to an evaluator. ``ask_s`` is how long the searcher took to choose it."""

    index: int
    config: Config
    measurement: Measurement
    ask_s: float = 0.0


@dataclass(frozen=True)
class Distance:
    """How far a chosen config is thought to be from the best: the share of its time that the best one would save.

    Args:
        mean: expected share, from 0 to 1.
        low: it is more than this with 95 % probability.
        high: it is less than this with 95 % probability.
        n_configs: configs that the best one is the best of.
        calibrated: whether source tasks have shown the figures to be right.
    """

    mean: float
    low: float
    high: float
    n_configs: int
    calibrated: bool


@dataclass(frozen=True)
class Study:
    """One whole run of a method on a task.

    ``distance`` is how far the best config is thought to be from the best of all, where the method can tell and was
    asked (:func:`bo_tuner.tuner.assess`).
    """

    task: Task
    method: str
    seed: int
    trials: tuple[Trial, ...]
    distance: Distance | None = None

    @property
    def best(self) -> Trial | None:
        """The fastest correct trial, the earliest of equals; None when none was correct."""
        return min((trial for trial in self.trials if trial.measurement.ok), key=_time, default=None)

    def incumbents(self) -> Iterator[Trial | None]:
        """After each trial, the best so far."""
        best: Trial | None = None
        for trial in self.trials:
            if trial.measurement.ok and (best is None or _time(trial) < _time(best)):
                best = trial
            yield best

    def to_frame(self) -> pd.DataFrame:
        """One row a trial."""
        import pandas as pd

        return pd.DataFrame(
            {
                "task": self.task.key,
                "method": self.method,
                "seed": self.seed,
                "trial": trial.index + 1,
                "config": config_key(trial.config),
                "status": trial.measurement.status.value,
                "time_us": trial.measurement.time_us,
                "compile_s": trial.measurement.compile_s,
                "ask_s": trial.ask_s,
            }
            for trial in self.trials
        )


def _time(trial: Trial) -> float:
    return trial.measurement.time_us
