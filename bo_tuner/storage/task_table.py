"""The ground truth of one task, in the order of the task's pool."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import Pool
from bo_tuner.study import Status
from bo_tuner.task import Task

Floats = NDArray[np.float64]
T = TypeVar("T")


def evenly(items: Sequence[T], n: int) -> list[T]:
    """At most ``n`` of some items, from the first to the last in even steps."""
    if n >= len(items):
        return list(items)
    return [items[round(step * (len(items) - 1) / max(n - 1, 1))] for step in range(n)]


@dataclass(frozen=True, eq=False)
class TaskTable:
    """The ground truth of one task. Arrays have one entry a row of the task's pool.

    Args:
        spec: the kernel.
        task: the task.
        status: how each config ended (``Status`` values).
        reading_us: the recorded screening reading, what a replayed trial sees; NaN unless correct.
        final_us: the time that judges; NaN unless correct.
        n_final: number of interleaved final readings, 0 for a config that was no finalist.
        compile_s: compile time, 0 where it is not known.
        library: name of the fastest library baseline, empty if none ran.
        library_us: its time, NaN if none ran.
        facts: the whole row of the task file.
        path: where the table was read from.
    """

    spec: KernelSpec
    task: Task
    status: NDArray[np.str_]
    reading_us: Floats
    final_us: Floats
    n_final: NDArray[np.int64]
    compile_s: Floats
    library: str = ""
    library_us: float = float("nan")
    facts: Mapping[str, Any] | None = None
    path: Path | None = None

    @property
    def pool(self) -> Pool:
        """The task's pool, enumerated when asked for."""
        return self.spec.pool(self.task)

    def __len__(self) -> int:
        return len(self.status)

    @functools.cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Which rows may be chosen at all."""
        mask: NDArray[np.bool_] = self.status == Status.CORRECT.value
        return mask

    @functools.cached_property
    def best_us(self) -> float:
        """The fastest final time; infinite when no config is correct."""
        return float(np.min(self.final_us, where=self.correct, initial=np.inf))

    @functools.cached_property
    def efficiencies(self) -> Floats:
        """Best final time over final time, 0 where not correct; shape ``[len(pool)]``."""
        return np.where(self.correct, self.best_us / np.where(self.correct, self.final_us, 1.0), 0.0)

    def efficiency(self, row: int) -> float:
        """Throughput of a config over the best one's, by final times; 0 if it is not correct."""
        return float(self.efficiencies[row])
