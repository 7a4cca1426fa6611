"""Record the ground truth: time every valid config of sampled shapes on this machine's GPUs.

Three things go on at once, so that no GPU waits: one thread has the tasks compiled in their order, one thread a GPU
times what is compiled, and one thread writes what is timed.

One finished task is one atomically written part file; a killed run loses at most the tasks that are being timed or
written and goes on where it stopped. When all shapes of a split are there, the parts become
``<out>/<kernel>/<device>/<split>.parquet``.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

import pandas as pd

from bo_tuner.errors import UserError
from bo_tuner.evaluators import exhaustive
from bo_tuner.evaluators.compiling import CompilePool, CompileResult
from bo_tuner.evaluators.exhaustive import Baseline, Row
from bo_tuner.evaluators.worker import GpuWorker, WorkerDied
from bo_tuner.kernels.spec import TRAIN_SEED, VALIDATION_SEED, KernelSpec
from bo_tuner.storage.schema import device_to_json, tasks_path
from bo_tuner.storage.tables import read_frames, write_tables
from bo_tuner.study import Status
from bo_tuner.task import Device, Task

#: What a task's timing gave: see ``GpuWorker.time_all``.
Timed = tuple[list[Row], list[Baseline], dict[str, Any]]


class Listener(Protocol):
    """Hears how a collection goes on, one call at a time, from any thread."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins."""

    def step(self, note: str) -> None:
        """One step of the stage is done."""


class Silent:
    """A listener that says nothing."""

    def stage(self, name: str, total: int) -> None: ...

    def step(self, note: str) -> None: ...


class _OneAtATime:
    """Lets several threads talk to one listener."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._lock = listener, threading.Lock()

    def stage(self, name: str, total: int) -> None:
        with self._lock:
            self._listener.stage(name, total)

    def step(self, note: str) -> None:
        with self._lock:
            self._listener.step(note)


@dataclass(frozen=True)
class Draw:
    """The first ``n_shapes`` shapes of a seed."""

    n_shapes: int
    seed: int

    @property
    def split(self) -> str:
        """``train`` and ``validation`` for the published seeds, else ``seed<seed>``."""
        return {TRAIN_SEED: "train", VALIDATION_SEED: "validation"}.get(self.seed, f"seed{self.seed}")


def collect(
    spec: KernelSpec,
    draws: Sequence[Draw],
    out: Path,
    n_sms: int | None = None,
    listener: Listener | None = None,
    n_gpus: int = 1,
) -> list[Path]:
    """Record the shapes of some draws, the draws taking turns so that a stop leaves a share of each.

    Args:
        spec: the kernel.
        draws: what to record.
        out: folder of the tables.
        n_sms: use only so many multiprocessors of each GPU.
        listener: hears the progress.
        n_gpus: time on the first so many GPUs, each task on one of them.

    Returns:
        the table files, one a draw.

    Raises:
        UserError: a GPU is missing, cannot be parted so or differs from the first, or a part cannot be written.
    """
    n_compilers = max(1, (os.cpu_count() or 1) - 1 - 2 * n_gpus)  # timing must not wait for a core
    with ExitStack() as stack:  # left from the bottom up, so what is timed is written and nothing is left running
        writer = stack.enter_context(ThreadPoolExecutor(1))
        compilers = stack.enter_context(closing(CompilePool(n_compilers)))
        threads = stack.enter_context(ThreadPoolExecutor(n_gpus + 1))
        workers = [stack.enter_context(closing(GpuWorker(n_sms, gpu))) for gpu in range(n_gpus)]
        _check_equal([worker.device for worker in workers])
        books = [_Book(spec, workers[0], draw, out) for draw in draws]
        todo = [(book, task) for turn in _take_turns([book.missing() for book in books]) for book, task in turn]
        recording = _Recording(spec, todo, _OneAtATime(listener or Silent()))
        stack.callback(recording.stopped.set)
        running = [threads.submit(recording.time, worker, writer) for worker in workers]
        running.append(threads.submit(recording.compile, compilers, n_gpus))
        for ended in as_completed(running):
            ended.result()  # the first error ends the run
        return [book.merge() for book in books]


def _check_equal(devices: Sequence[Device]) -> None:
    """Refuse GPUs that differ, since a table is of one device; two facts may be measured, and those scatter."""
    facts = [replace(device, bandwidth_gb_s=0.0, peak_bf16_tflops=0.0) for device in devices]
    for gpu, device in enumerate(devices):
        if facts[gpu] != facts[0]:
            raise UserError(f"gpus: GPU 0 is {devices[0].name} and GPU {gpu} is {device.name}, which are not equal")


def _take_turns(queues: Sequence[Sequence[Any]]) -> list[list[Any]]:
    longest = max((len(queue) for queue in queues), default=0)
    return [[queue[turn] for queue in queues if turn < len(queue)] for turn in range(longest)]


class _Recording:
    """The tasks on their way from the compilers through the GPUs to the writer.

    Compiling is told to the listener until the first task can be timed, from then on timing.
    """

    def __init__(self, spec: KernelSpec, todo: Sequence[tuple[_Book, Task]], listener: Listener) -> None:
        self._spec, self._todo, self._listener = spec, todo, listener
        self._compiled: SimpleQueue[tuple[_Book, Task, list[CompileResult]] | None] = SimpleQueue()
        self._timing = False
        self.stopped = threading.Event()

    def compile(self, compilers: CompilePool, n_gpus: int) -> None:
        """Compile the tasks in their order; the pool compiles what several of them need once.

        Raises:
            CancelledError: the run was stopped.
        """
        try:
            for book, task in self._todo:
                self._check_stop()
                pool = self._spec.pool(task)
                rows, places = pool.builds
                if not self._timing:
                    self._listener.stage("compiling", len(rows))
                compiled = compilers.compile([(task, pool.config(row)) for row in rows], self._hear)
                results = [compiled[place] for place in places]
                if not self._timing:
                    self._timing = True
                    self._listener.stage("timing", len(self._todo))
                self._compiled.put((book, task, results))
        finally:
            for _ in range(n_gpus):
                self._compiled.put(None)

    def _hear(self, result: CompileResult) -> None:
        self._check_stop()
        if not self._timing:
            self._listener.step(result.status.value)

    def _check_stop(self) -> None:
        if self.stopped.is_set():
            raise CancelledError

    def time(self, worker: GpuWorker, writer: Executor) -> None:
        """Time compiled tasks on one GPU until none is left; of those timed, at most one waits to be written.

        Raises:
            UserError: the GPU cannot be used, or a part cannot be written (raised when the next task is timed).
        """
        written: Future[None] | None = None
        for book, task, builds in iter(self._compiled.get, None):
            pairs = zip(self._spec.pool(task), builds, strict=True)
            configs = [config for config, build in pairs if build.status is Status.CORRECT]
            start = time.perf_counter()
            try:
                timed = worker.time_all(task, configs)
            except WorkerDied as death:
                if self.stopped.is_set():
                    return
                self._listener.step(f"{task.shape_key}: left out, {death}")
                continue
            seconds = time.perf_counter() - start
            if written is not None:
                written.result()
            written = writer.submit(self._write, book, task, builds, timed, seconds)
        if written is not None:
            written.result()

    def _write(self, book: _Book, task: Task, builds: Sequence[CompileResult], timed: Timed, seconds: float) -> None:
        self._listener.step(book.write(task, builds, timed, seconds))


class _Book:
    """The recorded and the missing tasks of one draw."""

    def __init__(self, spec: KernelSpec, worker: GpuWorker, draw: Draw, out: Path) -> None:
        self._spec, self._device, self._draw = spec, worker.device, draw
        self.path = out / spec.name / worker.device.key / f"{draw.split}.parquet"
        self._parts = self.path.with_suffix(".parts")
        self._metadata = {
            "device": device_to_json(worker.device),
            "source_hash": spec.source_hash,
            "timing_policy": json.dumps(worker.versions["timing"] | exhaustive.POLICY),
            "versions": json.dumps(worker.versions["software"]),
        }

    def missing(self) -> list[tuple[_Book, Task]]:
        """Tasks of the draw that are neither in the table nor a part, in order."""
        done = {tuple(shape) for path in self._files() for shape in _shapes(path, self._spec)}
        shapes = self._spec.sample_shapes(self._draw.n_shapes, self._draw.seed)
        return [(self, self._spec.task(shape, self._device)) for shape in shapes if tuple(shape.values()) not in done]

    def write(self, task: Task, builds: Sequence[CompileResult], timed: Timed, seconds: float) -> str:
        """Write a task's part.

        Args:
            task: the task.
            builds: how each config of its pool compiled.
            timed: the readings of those that did.
            seconds: how long timing took.

        Returns:
            a line that says how it went.

        Raises:
            UserError: a column holds a value of another type.
        """
        pool = self._spec.pool(task)
        timed_rows, baselines, clocks = timed
        usable = [i for i, build in enumerate(builds) if build.status is Status.CORRECT]
        rows = [Row(build.status, message=build.message) for build in builds]
        for i, row in zip(usable, timed_rows, strict=True):
            rows[i] = row
        for row, build in zip(rows, builds, strict=True):
            row.compile_s = build.compile_s
        columns = {**{key: [size] * len(pool) for key, size in task.shape.items()}, **_config_columns(pool)}
        frame = pd.concat([pd.DataFrame(columns), pd.DataFrame(exhaustive.records_of(rows))], axis=1)
        summary = {
            **task.shape,
            **_baseline_columns(baselines),
            **clocks,
            "n_configs": len(pool),
            "collect_s": seconds,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_tables(
            self._parts / f"{task.shape_key}.parquet", self._spec, frame, pd.DataFrame([summary]), self._metadata
        )
        best, library = frame["final_us"].min(), summary["library_us"]
        ratio = "no library" if library is None else f"library/best {library / best:.2f}"
        return f"{task.shape_key}: {len(pool)} configs in {seconds:.1f} s, best {best:.1f} us, {ratio}"

    def merge(self) -> Path:
        """Put the parts into the split's table and remove them."""
        files = self._files()
        parts = [file for file in files if file != self.path]
        if parts:
            frames = [read_frames(path, self._spec) for path in files]
            rows = pd.concat([rows for rows, _ in frames], ignore_index=True)
            tasks = pd.concat([tasks for _, tasks in frames], ignore_index=True)
            write_tables(self.path, self._spec, rows, tasks, self._metadata)
            for part in parts:
                tasks_path(part).unlink()
                part.unlink()
            self._parts.rmdir()
        return self.path

    def _files(self) -> list[Path]:
        """The split's table and the parts that are whole: the table of a part is written last."""
        parts = sorted(self._parts.glob("*.parquet")) if self._parts.is_dir() else []
        files = [self.path] if self.path.exists() else []
        return files + [part for part in parts if not part.stem.endswith("_tasks")]


def _shapes(path: Path, spec: KernelSpec) -> list[list[int]]:
    _, tasks = read_frames(path, spec)
    shapes: list[list[int]] = tasks[list(spec.shape_keys)].to_numpy().tolist()
    return shapes


def _config_columns(pool: Any) -> dict[str, list[Any]]:
    """The pool's columns with None where a parameter has no effect."""
    return {
        p.name: [v if on else None for v, on in zip(pool.columns[p.name].tolist(), pool.active[p.name], strict=True)]
        for p in pool.parameters
    }


def _baseline_columns(baselines: Sequence[Baseline]) -> dict[str, Any]:
    medians = {one.name: float(pd.Series(one.final_readings_us).median()) for one in baselines}
    name = min(medians, key=medians.__getitem__, default=None)
    return {
        "library": name,
        "library_us": None if name is None else medians[name],
        "baselines": json.dumps({key: round(value, 3) for key, value in medians.items()}),
    }
