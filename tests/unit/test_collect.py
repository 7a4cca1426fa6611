"""Recording: resumed where it stopped, merged when complete, readable as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bo_tuner import collect as module
from bo_tuner.collect import Draw, collect
from bo_tuner.evaluators.compiling import CompileResult
from bo_tuner.evaluators.exhaustive import Baseline, Row
from bo_tuner.evaluators.worker import WorkerDied
from bo_tuner.kernels import load_kernel
from bo_tuner.space import Config
from bo_tuner.storage.tables import check_tables, read_tables
from bo_tuner.study import Status
from bo_tuner.task import Task, device_named

SPEC = load_kernel("attention")


class StandInWorker:
    """A timing process that makes times up and stops after ``n_tasks``."""

    n_tasks = 10**9
    tasks: list[str] = []  # noqa: RUF012 - reset by the fixture
    deadly: str | None = None

    def __init__(self, n_sms: int | None = None) -> None:
        self.device = device_named("nvidia_h200")
        self.versions: dict[str, Any] = {"timing": {}, "software": {}}

    def time_all(self, task: Task, configs: Sequence[Config]) -> Any:
        if len(self.tasks) >= self.n_tasks:
            raise KeyboardInterrupt
        if task.shape_key == self.deadly:
            raise WorkerDied([0, 1], "no sign of life for 60 s")
        self.tasks.append(task.shape_key)
        rng = np.random.default_rng(0)
        rows = [Row(Status.CORRECT, [float(t)], rel_error=1e-3) for t in rng.uniform(10, 50, len(configs))]
        for row in sorted(rows, key=lambda row: row.readings_us[0])[:5]:
            row.final_readings_us = [row.readings_us[0] * 1.01] * 15
        return rows, [Baseline("sdpa", [9.0] * 15)], {"sm_clock_start_mhz": 1980, "sm_clock_end_mhz": 1980}

    def close(self) -> None: ...


class StandInPool:
    def compile(self, jobs: Sequence[Any], done: Callable[[CompileResult], None]) -> list[CompileResult]:
        """Every third build fails."""
        return [
            CompileResult(Status.COMPILE, 1.0, "no") if i % 3 == 2 else CompileResult(Status.CORRECT, 1.0)
            for i in range(len(jobs))
        ]

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GpuWorker", StandInWorker)
    monkeypatch.setattr(module, "CompilePool", StandInPool)
    monkeypatch.setattr(StandInWorker, "tasks", [])
    monkeypatch.setattr(StandInWorker, "n_tasks", 10**9)


def test_every_valid_config_is_recorded(tmp_path: Path) -> None:
    train, validation = collect(SPEC, [Draw(3, 1), Draw(2, 2)], tmp_path)
    assert train == tmp_path / "attention" / "nvidia_h200" / "train.parquet"
    assert validation.name == "validation.parquet"
    check_tables(train, SPEC)
    tables = read_tables(train, SPEC)
    assert [dict(table.task.shape) for table in tables] != []
    assert {table.task.shape_key for table in tables} == {
        SPEC.task(shape, StandInWorker().device).shape_key for shape in SPEC.sample_shapes(3, 1)
    }
    for table in tables:
        assert len(table) == len(SPEC.pool(table.task))
        assert set(table.status.tolist()) == {"correct", "compile"}
        assert table.library == "sdpa"


def test_a_stopped_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInWorker, "n_tasks", 2)
    with pytest.raises(KeyboardInterrupt):
        collect(SPEC, [Draw(3, 1)], tmp_path)
    first = list(StandInWorker.tasks)
    monkeypatch.setattr(StandInWorker, "n_tasks", 10**9)
    (path,) = collect(SPEC, [Draw(3, 1)], tmp_path)
    assert len(first) == 2
    assert len(set(StandInWorker.tasks)) == len(StandInWorker.tasks) == 3
    assert len(read_tables(path, SPEC)) == 3
    assert sorted(file.name for file in path.parent.iterdir()) == ["train.parquet", "train_tasks.parquet"]


def test_a_half_written_part_is_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInWorker, "n_tasks", 1)
    with pytest.raises(KeyboardInterrupt):
        collect(SPEC, [Draw(2, 1)], tmp_path)
    (part,) = [file for file in tmp_path.rglob("*.parquet") if not file.stem.endswith("_tasks")]
    part.unlink()  # killed between the two files of a part: the task file is there, the table is not
    monkeypatch.setattr(StandInWorker, "n_tasks", 10**9)
    (path,) = collect(SPEC, [Draw(2, 1)], tmp_path)
    assert len(read_tables(path, SPEC)) == 2


def test_a_larger_sample_adds_to_the_table(tmp_path: Path) -> None:
    collect(SPEC, [Draw(2, 1)], tmp_path)
    (path,) = collect(SPEC, [Draw(4, 1)], tmp_path)
    assert len(StandInWorker.tasks) == 4
    assert len(read_tables(path, SPEC)) == 4


def test_a_task_that_kills_the_process_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SPEC.sample_shapes(2, 1)[1]
    monkeypatch.setattr(StandInWorker, "deadly", SPEC.task(shape, StandInWorker().device).shape_key)
    notes: list[str] = []

    class Listener:
        def stage(self, name: str, total: int) -> None: ...

        def step(self, note: str) -> None:
            notes.append(note)

    (path,) = collect(SPEC, [Draw(2, 1)], tmp_path, listener=Listener())
    assert len(read_tables(path, SPEC)) == 1
    assert any("left out" in note for note in notes)
