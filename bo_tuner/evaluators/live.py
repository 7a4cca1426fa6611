"""Evaluate configs on the GPU of this machine."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Hashable, Sequence
from types import TracebackType
from typing import Self

from bo_tuner.errors import UserError
from bo_tuner.evaluators.compiling import CompilePool
from bo_tuner.evaluators.worker import GpuWorker, WorkerDied
from bo_tuner.kernels import load_kernel
from bo_tuner.space import Config
from bo_tuner.study import Measurement, Status
from bo_tuner.task import Device, Task

#: Readings of one trial, in µs, of which the median counts.
N_READINGS = 11


def gpu_is_there() -> bool:
    """Whether a CUDA GPU can be used on this machine."""
    import torch

    return bool(torch.cuda.is_available())


class LiveEvaluator:
    """Compile, check and time configs of one task; a context manager that owns a timing process.

    Raises:
        UserError: there is no CUDA GPU.
    """

    def __init__(self, n_sms: int | None = None) -> None:
        if not gpu_is_there():
            raise UserError("GPU: none found on this machine; add --replay to tune on a recorded table")
        self._worker = GpuWorker(n_sms)
        self._pool = CompilePool()
        self._ahead: threading.Thread | None = None
        self._task: Task | None = None
        self._baselines: dict[str, list[float]] = {}
        self._charged: set[Hashable] = set()

    @property
    def device(self) -> Device:
        """The device that this evaluator times on."""
        return self._worker.device

    @property
    def baselines_us(self) -> dict[str, float]:
        """Library calls timed beside the trials, median over the trials: the fastest of many would flatter them."""
        return {name: statistics.median(medians) for name, medians in self._baselines.items()}

    def open(self, task: Task) -> Self:
        """Choose the task that ``evaluate`` is about."""
        self._task, self._baselines, self._charged = task, {}, set()
        return self

    def prefetch(self, configs: Sequence[Config]) -> None:
        """Start compiling configs that are likely to be asked for, in parallel and without waiting.

        Equal machine code is compiled once; the first trial waits until all of it is there. A config that does not
        compile in time, or at all, fails when it is tried.
        """
        assert self._task is not None, "call open(task) first"
        jobs = [(self._task, config) for config in configs]
        self._ahead = threading.Thread(target=self._pool.compile, args=(jobs,), daemon=True)
        self._ahead.start()

    def evaluate(self, config: Config) -> Measurement:
        """One trial: compile in a process of its own, check against the reference, read ``N_READINGS`` times.

        The compile time counts once for each machine code, as a first trial of it that was not prefetched would take.
        """
        assert self._task is not None, "call open(task) first"
        if self._ahead is not None:
            self._ahead.join()
            self._ahead = None
        (compiled,) = self._pool.compile([(self._task, config)])
        build = load_kernel(self._task.kernel).program.build(config, self._task).key
        compile_s = 0.0 if build in self._charged else compiled.compile_s
        self._charged.add(build)
        if compiled.status is not Status.CORRECT:
            return Measurement(compiled.status, (), compile_s, compiled.message)
        try:
            (row,), baselines = self._worker.time_some(self._task, [config], N_READINGS)
        except WorkerDied as death:
            return Measurement(Status.RUNTIME, (), compile_s, str(death))
        for name, readings in baselines.items():
            self._baselines.setdefault(name, []).append(statistics.median(readings))
        return Measurement(row.status, tuple(row.readings_us), compile_s, row.message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.close()
        self._pool.close()
