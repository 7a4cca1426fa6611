"""Record the ground truth: time every valid config of sampled shapes on this machine's GPU.

One finished task is one atomically written part file; a killed run loses at most the task in flight and goes on
where it stopped. When all shapes of a split are there, the parts become ``<out>/<kernel>/<device>/<split>.parquet``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from bo_tuner.evaluators import exhaustive
from bo_tuner.evaluators.compiling import CompilePool, CompileResult
from bo_tuner.evaluators.exhaustive import Baseline, Row
from bo_tuner.evaluators.worker import GpuWorker, WorkerDied
from bo_tuner.kernels.spec import TRAIN_SEED, VALIDATION_SEED, KernelSpec
from bo_tuner.space import Config
from bo_tuner.storage.schema import device_to_json, tasks_path
from bo_tuner.storage.tables import read_frames, write_tables
from bo_tuner.study import Status
from bo_tuner.task import Task


class Listener(Protocol):
    """Hears how a collection goes on."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins."""

    def step(self, note: str) -> None:
        """One step of the stage is done."""


class Silent:
    """A listener that says nothing."""

    def stage(self, name: str, total: int) -> None: ...

    def step(self, note: str) -> None: ...


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
) -> list[Path]:
    """Record the shapes of some draws, the draws taking turns so that a stop leaves a share of each.

    Args:
        spec: the kernel.
        draws: what to record.
        out: folder of the tables.
        n_sms: use only so many multiprocessors.
        listener: hears the progress.

    Returns:
        the table files, one a draw.

    Raises:
        UserError: no GPU, or it cannot be parted so.
    """
    listener = listener or Silent()
    worker, compilers = GpuWorker(n_sms), CompilePool()
    try:
        books = [_Book(spec, worker, draw, out) for draw in draws]
        todo = [(book, task) for turn in _take_turns([book.missing() for book in books]) for book, task in turn]
        compiled = _compile(spec, compilers, [task for _, task in todo], listener)
        listener.stage("timing", len(todo))
        for book, task in todo:
            listener.step(book.record(task, compiled[task]))
        return [book.merge() for book in books]
    finally:
        worker.close()
        compilers.close()


def _take_turns(queues: Sequence[Sequence[Any]]) -> list[list[Any]]:
    longest = max((len(queue) for queue in queues), default=0)
    return [[queue[turn] for queue in queues if turn < len(queue)] for turn in range(longest)]


def _compile(
    spec: KernelSpec, compilers: CompilePool, tasks: Sequence[Task], listener: Listener
) -> dict[Task, list[CompileResult]]:
    """Compile every distinct build of the tasks; results in the order of each task's pool."""
    place_of: dict[Any, int] = {}  # of a build among the jobs; a key is large, and every config has one
    jobs: list[tuple[Task, Config]] = []
    places: dict[Task, list[int]] = {}
    for task in tasks:
        places[task] = []
        for config in spec.pool(task):
            place = place_of.setdefault(spec.program.build(config, task).key, len(jobs))
            if place == len(jobs):
                jobs.append((task, config))
            places[task].append(place)
    listener.stage("compiling", len(jobs))
    results = compilers.compile(jobs, lambda result: listener.step(result.status.value))
    return {task: [results[place] for place in of_task] for task, of_task in places.items()}


class _Book:
    """The recorded and the missing tasks of one draw."""

    def __init__(self, spec: KernelSpec, worker: GpuWorker, draw: Draw, out: Path) -> None:
        self._spec, self._worker, self._draw = spec, worker, draw
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
        device = self._worker.device
        return [(self, self._spec.task(shape, device)) for shape in shapes if tuple(shape.values()) not in done]

    def record(self, task: Task, builds: Sequence[CompileResult]) -> str:
        """Time a task, given how each config compiled, and write its part; returns a line that says how it went."""
        start = time.perf_counter()
        pool = self._spec.pool(task)
        configs = list(pool)
        usable = [i for i, build in enumerate(builds) if build.status is Status.CORRECT]
        try:
            timed, baselines, clocks = self._worker.time_all(task, [configs[i] for i in usable])
        except WorkerDied as death:
            return f"{task.shape_key}: left out, {death}"
        rows = [Row(build.status, message=build.message) for build in builds]
        for i, row in zip(usable, timed, strict=True):
            rows[i] = row
        for row, build in zip(rows, builds, strict=True):
            row.compile_s = build.compile_s
        columns = {**{key: [size] * len(pool) for key, size in task.shape.items()}, **_config_columns(pool)}
        frame = pd.concat([pd.DataFrame(columns), pd.DataFrame(exhaustive.records_of(rows))], axis=1)
        seconds = time.perf_counter() - start
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
