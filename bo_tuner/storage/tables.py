"""Recorded tables: every valid config of a task, timed. Parquet files under ``data/<kernel>/<device>/<split>.parquet``.

Every fault of a file is a one-line ``UserError`` that names the file and the field.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import config_key
from bo_tuner.storage.alignment import config_codes, find_codes, pool_codes, space_fingerprint
from bo_tuner.storage.schema import (
    METADATA,
    SCHEMA_VERSION,
    device_from_json,
    is_task_file,
    row_schema,
    task_schema,
    tasks_path,
)
from bo_tuner.storage.task_table import TaskTable, evenly
from bo_tuner.study import Status
from bo_tuner.task import Task, file_key

__all__ = [
    "TaskTable",
    "check_tables",
    "evenly",
    "find_tables",
    "read_frames",
    "read_metadata",
    "read_tables",
    "write_tables",
]


def find_tables(root: Path | str, kernel: str, device: str | None = None, split: str = "train") -> list[Path]:
    """Table files of a kernel under ``root``, of one device (name or key) or of all, sorted.

    Raises:
        UserError: there is none.
    """
    pattern = f"{kernel}/{file_key(device) if device else '*'}/{split}.parquet"
    paths = sorted(path for path in Path(root).glob(pattern) if not is_task_file(path))
    if not paths:
        found = sorted(path for path in Path(root).glob("*/*/*.parquet") if not is_task_file(path))
        there = ", ".join(str(path.relative_to(root)) for path in found) or "none at all"
        raise UserError(f"data: no table {Path(root) / pattern}; there is {there}")
    return paths


def read_metadata(path: Path | str) -> dict[str, str]:
    """The ``bo_tuner.*`` metadata of a table file, names without the prefix.

    Raises:
        UserError: the file is missing, not Parquet, or lacks an entry.
    """
    path = Path(path)
    with _parquet_errors(path):
        stored = pq.read_schema(path).metadata or {}
    found = {}
    for name in METADATA:
        key = f"bo_tuner.{name}".encode()
        if key not in stored:
            raise UserError(f"{path}: metadata {key.decode()} is missing, this is no bo_tuner table")
        found[name] = stored[key].decode()
    if found["schema_version"] != SCHEMA_VERSION:
        raise UserError(
            f"{path}: schema_version: {found['schema_version']} is not {SCHEMA_VERSION}, the version read here"
        )
    return found


def read_tables(path: Path | str, spec: KernelSpec) -> list[TaskTable]:
    """All tasks of one table file, in the order of its task file.

    Raises:
        UserError: any fault of the two files; one line with the file and the field.
    """
    path = Path(path)
    metadata = read_metadata(path)
    if metadata["kernel"] != spec.name:
        raise UserError(f"{path}: kernel: {metadata['kernel']} is not {spec.name}")
    if metadata["space"] != space_fingerprint(spec):
        raise UserError(f"{path}: space: the table was recorded for another version of {spec.name}'s search space")
    try:
        device = device_from_json(metadata["device"])
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: device: cannot be read ({error})") from None
    rows = _read(path, row_schema(spec))
    tasks = _read(tasks_path(path), task_schema(spec)).to_pylist()
    groups = _group_by_shape(rows, spec)
    columns = _Columns(rows, spec, path)
    tables = []
    for facts in tasks:
        shape = {key: int(facts[key]) for key in spec.shape_keys}
        members = groups.pop(tuple(shape.values()), None)
        task = spec.task(shape, device)
        if members is None:
            raise UserError(f"{path}: {task.shape_key}: is in the task file but has no rows")
        tables.append(columns.table(task, members, facts))
    if groups:
        raise UserError(f"{path}: shape {next(iter(groups))}: has rows but is not in {tasks_path(path).name}")
    return tables


def read_frames(path: Path | str, spec: KernelSpec) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows and the tasks of a table file as they are stored, columns checked.

    Raises:
        UserError: a file is missing, not Parquet, or has other columns.
    """
    path = Path(path)
    return _read(path, row_schema(spec)).to_pandas(), _read(tasks_path(path), task_schema(spec)).to_pandas()


def write_tables(
    path: Path | str, spec: KernelSpec, rows: pd.DataFrame, tasks: pd.DataFrame, metadata: Mapping[str, str]
) -> None:
    """Write a table and its task file, each atomically (the task file first, so a table never stands alone).

    ``metadata`` gives ``device`` (see :func:`device_to_json`), ``source_hash``, ``timing_policy`` and ``versions``;
    the schema version, the kernel, its dtype and the space's version and fingerprint are added here.

    Raises:
        UserError: a column is missing or holds a value of another type.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {
        "schema_version": SCHEMA_VERSION,
        "kernel": spec.name,
        "dtype": Task.dtype,
        "space": space_fingerprint(spec),
        "space_version": str(spec.space_version),
    }
    entries = {f"bo_tuner.{name}": text for name, text in {**metadata, **known}.items()}
    for target, frame, schema in ((tasks_path(path), tasks, task_schema(spec)), (path, rows, row_schema(spec))):
        try:
            table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
        except (KeyError, pa.ArrowException, TypeError, ValueError) as error:
            raise UserError(f"{target}: {str(error).splitlines()[0]}") from error
        partial = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        pq.write_table(table.replace_schema_metadata(entries), partial, compression="zstd")
        partial.replace(target)


def check_tables(path: Path | str, spec: KernelSpec) -> str:
    """Check one table file and its splits' disjointness; the report is one line.

    Reading already proves: every valid config once, no other, times finite and positive. Beyond that the best config
    of a task must be a finalist that was re-timed, the task file must count the configs right, and no shape may be
    in another split of the same folder.

    Args:
        path: the table file.
        spec: its kernel.

    Raises:
        UserError: the first fault, naming the file and the field.
    """
    path = Path(path)
    tables = read_tables(path, spec)
    for table in tables:
        where = f"{path}: {table.task.shape_key}"
        if (table.facts or {}).get("n_configs") != len(table):
            raise UserError(f"{where}: n_configs: is not {len(table)}, the number of rows")
        if not table.correct.any():
            raise UserError(f"{where}: status: no config is correct")
        if not table.n_final[np.argmin(np.where(table.correct, table.final_us, np.inf))]:
            raise UserError(f"{where}: n_final_readings: the best config was not re-timed")
    shapes = {tuple(table.task.shape.values()): table.task.shape_key for table in tables}
    for other in sorted(path.parent.glob("*.parquet")):
        if other != path and not is_task_file(other):
            tasks = _read(tasks_path(other), task_schema(spec))
            for shape in zip(*(tasks[key].to_pylist() for key in spec.shape_keys), strict=True):
                if shape in shapes:
                    raise UserError(f"{path}: {shapes[shape]}: is in {other.name} too")
    n_configs, n_correct = sum(map(len, tables)), sum(int(table.correct.sum()) for table in tables)
    n_finalists = sum(int((table.n_final > 0).sum()) for table in tables)
    return f"{len(tables)} tasks, {n_configs} configs, {n_configs - n_correct} failed, {n_finalists} finalists re-timed"


class _Columns:
    """The row file as arrays, cut into tasks and brought into pool order."""

    def __init__(self, rows: pa.Table, spec: KernelSpec, path: Path) -> None:
        self.spec, self.path = spec, path
        self.values: dict[str, NDArray[Any]] = {}
        self.absent: dict[str, NDArray[np.bool_]] = {}
        for p in spec.space.parameters:
            column = rows[p.name]
            self.absent[p.name] = np.asarray(column.is_null())
            filled = column.fill_null(p.values[0] if p.neutral is None else p.neutral)
            self.values[p.name] = _strings(filled) if isinstance(p.values[0], str) else filled.to_numpy()
        self.codes = config_codes(spec.space.parameters, self.values)
        self.status = _strings(rows["status"])
        floats = ("screening_us", "final_us", "compile_s")
        self.floats = {name: rows[name].to_numpy().astype(np.float64) for name in floats}
        self.n_final = rows["n_final_readings"].fill_null(0).to_numpy().astype(np.int64)
        correct = self.status == Status.CORRECT.value
        for name in floats[:2]:
            values = self.floats[name]
            if not np.all(np.isfinite(values[correct]) & (values[correct] > 0)):
                raise UserError(f"{path}: {name}: a correct config has a time that is not finite and positive")
            if not np.all(np.isnan(values[~correct])):
                raise UserError(f"{path}: {name}: a config that is not correct has a time")
        unknown = sorted(set(rows["status"].unique().to_pylist()) - {status.value for status in Status})
        if unknown:
            raise UserError(
                f"{path}: status: {unknown[0]!r} is not one of {', '.join(status.value for status in Status)}"
            )

    def table(self, task: Task, members: NDArray[np.int64], facts: Mapping[str, Any]) -> TaskTable:
        """Rows ``members`` of the file as the table of a task."""
        where = f"{self.path}: {task.shape_key}"
        pool = self.spec.pool(task)
        codes, wanted = self.codes[members], pool_codes(pool)
        distinct, counts = np.unique(codes, return_counts=True)
        if np.any(counts > 1):
            raise UserError(f"{where}: {self._config(members[codes == distinct[counts > 1][0]][0])} is recorded twice")
        alien = find_codes(wanted, codes) < 0
        if np.any(alien):
            raise UserError(f"{where}: {self._config(members[alien][0])} is not a valid config of this task")
        place = find_codes(codes, wanted)
        if np.any(place < 0):
            missing = int(np.argmax(place < 0))
            raise UserError(f"{where}: {config_key(pool.config(missing))} is missing ({int(np.sum(place < 0))} in all)")
        rows = members[place]
        for p in self.spec.space.parameters:
            if np.any(self.absent[p.name][rows] == pool.active[p.name]):
                raise UserError(f"{where}: {p.name}: must be null exactly where it has no effect")
        return TaskTable(
            spec=self.spec,
            task=task,
            status=self.status[rows],
            reading_us=self.floats["screening_us"][rows],
            final_us=self.floats["final_us"][rows],
            n_final=self.n_final[rows],
            compile_s=np.nan_to_num(self.floats["compile_s"][rows]),
            library=facts["library"] or "",
            library_us=float("nan") if facts["library_us"] is None else float(facts["library_us"]),
            facts=facts,
            path=self.path,
        )

    def _config(self, row: int) -> str:
        return config_key({name: values[row] for name, values in self.values.items() if not self.absent[name][row]})


def _strings(column: pa.ChunkedArray) -> NDArray[np.str_]:
    """A text column as a NumPy array; few distinct values, so each is converted once."""
    encoded = column.combine_chunks().dictionary_encode()
    words = np.array(encoded.dictionary.to_pylist() or [""])
    strings: NDArray[np.str_] = words[encoded.indices.to_numpy()]
    return strings


def _group_by_shape(rows: pa.Table, spec: KernelSpec) -> dict[tuple[int, ...], NDArray[np.int64]]:
    shapes = np.column_stack([rows[key].to_numpy() for key in spec.shape_keys])
    if not len(shapes):
        return {}
    order = np.lexsort(shapes.T)
    starts = np.flatnonzero(np.any(np.diff(shapes[order], axis=0), axis=1)) + 1
    return {tuple(shapes[part[0]].tolist()): part for part in np.split(order, starts)}


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    with _parquet_errors(path):
        table = pq.read_table(path)
    for expected in schema:
        at = table.schema.get_field_index(expected.name)
        if at < 0:
            raise UserError(f"{path}: column {expected.name} is missing")
        if table.schema.field(at).type != expected.type:
            raise UserError(f"{path}: column {expected.name}: {table.schema.field(at).type} is not {expected.type}")
    extra = [name for name in table.column_names if name not in schema.names]
    if extra:
        raise UserError(f"{path}: column {extra[0]} is unknown")
    for key in [name for name in schema.names if name == "status" or (schema.get_field_index(name) == 0)]:
        if table[key].null_count:
            raise UserError(f"{path}: column {key} has empty cells")
    return table


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]})") from None
