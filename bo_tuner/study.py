"""What a tuning run produced: plain frozen data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
    asked (:func:`bo_tuner.tuner.assess`). ``n_saved`` is how many trials of the budget were left when the run ended
    because another one promised too little.
    """

    task: Task
    method: str
    seed: int
    trials: tuple[Trial, ...]
    distance: Distance | None = None
    n_saved: int = 0

    @property
    def best(self) -> Trial | None:
        """The first of :meth:`ranked`; None when no trial was correct."""
        return next(iter(self.ranked()), None)

    def ranked(self) -> list[Trial]:
        """One trial a correct config, the fastest first, the earliest of equals first.

        It is the config's first trial; where the config was tried again, with the readings of all its trials. A config
        that failed in one of them is not in the list: what is chosen has to work every time.
        """
        merged: dict[str, Trial] = {}
        for trial in self.trials:
            _merge(merged, trial)
        return _fastest_first(merged)

    def incumbents(self) -> Iterator[Trial | None]:
        """After each trial, the best so far."""
        best: Trial | None = None
        merged: dict[str, Trial] = {}
        for trial in self.trials:
            if _merge(merged, trial):
                best = next(iter(_fastest_first(merged)), None)
            elif trial.measurement.ok and (best is None or _time(trial) < _time(best)):
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


def _merge(merged: dict[str, Trial], trial: Trial) -> bool:
    """Add a trial to the one of the same config, if there is one; tell whether there was."""
    key = config_key(trial.config)
    earlier = merged.get(key)
    if earlier is None:
        merged[key] = trial
        return False
    result, other = earlier.measurement, trial.measurement
    if result.ok and other.ok:
        result = replace(result, readings_us=result.readings_us + other.readings_us)
    merged[key] = replace(earlier, measurement=other if not other.ok else result)
    return True


def _fastest_first(merged: Mapping[str, Trial]) -> list[Trial]:
    return sorted((trial for trial in merged.values() if trial.measurement.ok), key=_time)


def _time(trial: Trial) -> float:
    return trial.measurement.time_us
