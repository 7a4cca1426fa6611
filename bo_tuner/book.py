"""What a recording writes down: the recorded and the missing tasks of a draw of shapes, and how they become a table."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from bo_tuner.errors import UserError
from bo_tuner.evaluators import exhaustive
from bo_tuner.evaluators.compiling import CompileResult
from bo_tuner.evaluators.exhaustive import Baseline, Row
from bo_tuner.kernels.spec import TRAIN_SEED, VALIDATION_SEED, KernelSpec
from bo_tuner.storage.alignment import space_fingerprint
from bo_tuner.storage.schema import device_from_json, device_to_json, tasks_path
from bo_tuner.storage.tables import read_frames, read_metadata, write_tables
from bo_tuner.study import Status
from bo_tuner.task import Device, Task

#: No compilation is this short, in seconds: the build was in the compiler's cache, and what it cost is not known.
_CACHED_S = 0.05

#: What a task's timing gave: see ``GpuWorker.time_all``.
Timed = tuple[list[Row], list[Baseline], dict[str, Any]]


@dataclass(frozen=True)
class Draw:
    """The first ``n_shapes`` shapes of a seed."""

    n_shapes: int
    seed: int

    @property
    def split(self) -> str:
        """``train`` and ``validation`` for the published seeds, else ``seed<seed>``."""
        return {TRAIN_SEED: "train", VALIDATION_SEED: "validation"}.get(self.seed, f"seed{self.seed}")


class Book:
    """The recorded and the missing tasks of one draw."""

    def __init__(
        self, spec: KernelSpec, draw: Draw, out: Path, device: Device, versions: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._spec, self._draw, self._device = spec, draw, device
        self.path = out / spec.name / device.key / f"{draw.split}.parquet"
        self._parts = self.path.with_suffix(".parts")
        self._metadata = {
            "device": device_to_json(device),
            "source_hash": spec.source_hash,
            "timing_policy": json.dumps({**versions["timing"], **exhaustive.POLICY}),
            "versions": json.dumps(versions["software"]),
        }

    def missing(self) -> list[tuple[Book, Task]]:
        """Tasks of the draw that are neither in the table nor a part, in order.

        Raises:
            UserError: what is there was recorded with another kernel source, space or device.
        """
        files = self._files()
        for path in files:
            self._check_same(path)
        done = {shape for path in files for shape in _shapes(path, self._spec)}
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
            row.compile_s = build.compile_s if build.compile_s > _CACHED_S else math.nan
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
        if files not in ([], [self.path]):
            frames = [read_frames(path, self._spec) for path in files]
            shape, names = list(self._spec.shape_keys), [p.name for p in self._spec.space.parameters]
            # A run that was killed in here left a table that has some of the parts already.
            rows = pd.concat([rows for rows, _ in frames], ignore_index=True).drop_duplicates(shape + names)
            tasks = pd.concat([tasks for _, tasks in frames], ignore_index=True).drop_duplicates(shape)
            write_tables(self.path, self._spec, rows, tasks, self._metadata | _histories(files))
        if self._parts.is_dir():
            shutil.rmtree(self._parts)
        return self.path

    def _check_same(self, path: Path) -> None:
        found = read_metadata(path)
        device = without_measured_facts(device_from_json(found["device"]))
        same = {
            "source_hash": found["source_hash"] == self._metadata["source_hash"],
            "space": found["space"] == space_fingerprint(self._spec),
            "device": device == without_measured_facts(self._device),
        }
        for name, is_same in same.items():
            if not is_same:
                raise UserError(
                    f"{path}: {name}: is not that of this recording; move the file away or give another --out"
                )

    def _files(self) -> list[Path]:
        """The split's table and the parts that are whole: those that have both their files."""
        parts = [part for part in sorted(self._parts.glob("*.parquet")) if tasks_path(part).exists()]
        return [self.path, *parts] if self.path.exists() else parts


def without_measured_facts(device: Device) -> Device:
    """A device less the two facts that are measured where no data sheet gives them: those scatter."""
    return replace(device, bandwidth_gb_s=0.0, peak_bf16_tflops=0.0)


def _histories(files: Sequence[Path]) -> dict[str, str]:
    """Timing policy and versions of a table that was recorded on several occasions: a list where they differ."""
    found = [read_metadata(path) for path in files]
    merged = {}
    for name in ("timing_policy", "versions"):
        entries: list[Any] = []
        for metadata in found:
            entry = json.loads(metadata[name])
            entries += [one for one in (entry if isinstance(entry, list) else [entry]) if one not in entries]
        merged[name] = json.dumps(entries[0] if len(entries) == 1 else entries)
    return merged


def _shapes(path: Path, spec: KernelSpec) -> set[tuple[int, ...]]:
    """Shapes that both files of a table have."""
    rows, tasks = (frame[list(spec.shape_keys)].drop_duplicates() for frame in read_frames(path, spec))
    return set(map(tuple, rows.to_numpy().tolist())) & set(map(tuple, tasks.to_numpy().tolist()))


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
