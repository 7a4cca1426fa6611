"""Recording: resumed where it stopped, merged when complete, readable as a table; compiled, timed, written at once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bo_tuner import book
from bo_tuner import collect as module
from bo_tuner.collect import Draw, collect
from bo_tuner.errors import UserError
from bo_tuner.evaluators import exhaustive
from bo_tuner.evaluators.compiling import CompileResult
from bo_tuner.evaluators.exhaustive import Baseline, Row
from bo_tuner.evaluators.worker import WorkerDied
from bo_tuner.kernels import load_kernel
from bo_tuner.space import Config
from bo_tuner.storage.schema import device_to_json, is_task_file, tasks_path
from bo_tuner.storage.tables import check_tables, read_frames, read_metadata, read_tables, write_tables
from bo_tuner.study import Status
from bo_tuner.task import Device, Task, device_named

SPEC = load_kernel("attention")
H200 = device_named("nvidia_h200")
#: Seconds after which a thread that waits for another one gives up, so that a failure is no hang.
PATIENCE_S = 60.0


class StandInWorker:
    """A timing process that makes times up and stops after ``n_tasks``."""

    n_tasks = 10**9
    tasks: list[str] = []  # noqa: RUF012 - reset by the fixture
    deadly: str | None = None
    device: Device = H200

    def __init__(self, n_sms: int | None = None, gpu: int | None = None) -> None:
        self.gpu = gpu
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
        return (
            rows,
            [Baseline("sdpa", [9.0] * 15)],
            {"sm_clock_start_mhz": 1980, "sm_clock_end_mhz": 1980, "gpu": "0000"},
        )

    def close(self) -> None: ...


class StandInPool:
    n_workers = 0

    def __init__(self, n_workers: int) -> None:
        StandInPool.n_workers = n_workers

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
        SPEC.task(shape, H200).shape_key for shape in SPEC.sample_shapes(3, 1)
    }
    for table in tables:
        assert len(table) == len(SPEC.pool(table.task))
        assert set(table.status.tolist()) == {"correct", "compile"}
        assert table.library == "sdpa"


def test_compile_seconds_of_a_cached_build_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_some(self: StandInPool, jobs: Sequence[Any], done: Any) -> list[CompileResult]:
        return [CompileResult(Status.CORRECT, 0.001 if i else 0.7) for i in range(len(jobs))]

    monkeypatch.setattr(StandInPool, "compile", compile_some)
    (path,) = collect(SPEC, [Draw(1, 1)], tmp_path)
    seconds = read_frames(path, SPEC)[0]["compile_s"]
    assert seconds.isna().any()
    assert set(seconds.dropna().astype(float).round(3)) == {0.7}
    check_tables(path, SPEC)


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


def test_a_table_of_another_source_space_or_device_is_not_added_to(tmp_path: Path) -> None:
    (path,) = collect(SPEC, [Draw(1, 1)], tmp_path)
    rows, tasks = read_frames(path, SPEC)
    kept = {name: read_metadata(path)[name] for name in ("device", "source_hash", "timing_policy", "versions")}
    for name, value in (("source_hash", "0"), ("device", device_to_json(H200.with_sms(72)))):
        write_tables(path, SPEC, rows, tasks, kept | {name: value})
        with pytest.raises(UserError, match=f"{name}: is not that of this recording"):
            collect(SPEC, [Draw(2, 1)], tmp_path)
    assert len(StandInWorker.tasks) == 1


def test_policies_and_versions_of_all_occasions_stay_with_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(SPEC, [Draw(1, 1)], tmp_path)
    (path,) = collect(SPEC, [Draw(2, 1)], tmp_path)
    assert isinstance(json.loads(read_metadata(path)["timing_policy"]), dict)
    for close in (1.3, 1.4):
        monkeypatch.setattr(exhaustive, "POLICY", {"screening": f"new within {close}"})
        collect(SPEC, [Draw(round(close * 10) - 10, 1)], tmp_path)
    policies = json.loads(read_metadata(path)["timing_policy"])
    assert [policy["screening"] for policy in policies][1:] == ["new within 1.3", "new within 1.4"]
    check_tables(path, SPEC)


RECORD = """
import sys, time
from pathlib import Path
from tests.unit import test_collect as stand_ins

class Slow(stand_ins.StandInWorker):
    def time_all(self, task, configs):
        time.sleep(0.2)
        return super().time_all(task, configs)

stand_ins.module.GpuWorker, stand_ins.module.CompilePool = Slow, stand_ins.StandInPool
stand_ins.collect(stand_ins.SPEC, [stand_ins.Draw(40, 1)], Path(sys.argv[1]), n_gpus=2)
"""


def test_kill_9_loses_nothing_that_was_written(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent.parent
    recorder = subprocess.Popen([sys.executable, "-c", RECORD, str(tmp_path)], cwd=root)
    parts = tmp_path / "attention" / "nvidia_h200" / "train.parts"
    deadline = time.monotonic() + PATIENCE_S
    while len(list(parts.glob("*.parquet"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    recorder.kill()
    recorder.wait()
    written = {file.name for file in parts.glob("*.parquet") if not is_task_file(file)}
    assert 0 < len(written) < 40
    (path,) = collect(SPEC, [Draw(40, 1)], tmp_path)
    assert check_tables(path, SPEC).startswith("40 tasks")
    assert not {f"{name}.parquet" for name in StandInWorker.tasks} & written
    assert len(StandInWorker.tasks) == 40 - len(written)


def test_a_run_killed_while_it_merges_goes_on_to_a_whole_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect(SPEC, [Draw(1, 1)], tmp_path)
    write = book.write_tables

    def tasks_alone(path: Path, *rest: Any) -> None:
        if path.parent.name.endswith(".parts"):
            return write(path, *rest)
        write(tmp_path / "aside" / path.name, *rest)
        tasks_path(tmp_path / "aside" / path.name).replace(tasks_path(path))
        raise KeyboardInterrupt

    def refuse(*_: object) -> None:
        raise KeyboardInterrupt

    for n_shapes, name, killed in ((2, "write_tables", tasks_alone), (3, "shutil.rmtree", refuse)):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(f"bo_tuner.book.{name}", killed)
            collect(SPEC, [Draw(n_shapes, 1)], tmp_path)
        (path,) = collect(SPEC, [Draw(n_shapes, 1)], tmp_path)
        assert check_tables(path, SPEC).startswith(f"{n_shapes} tasks")
        assert not path.with_suffix(".parts").exists()
    assert len(StandInWorker.tasks) == 3


def test_a_table_without_its_task_file_is_not_overwritten(tmp_path: Path) -> None:
    (path,) = collect(SPEC, [Draw(1, 1)], tmp_path)
    tasks_path(path).unlink()
    kept = path.read_bytes()
    with pytest.raises(UserError, match=r"train_tasks\.parquet: there is no such file"):
        collect(SPEC, [Draw(2, 1)], tmp_path)
    assert path.read_bytes() == kept


def test_leftovers_of_a_killed_writer_do_not_stay(tmp_path: Path) -> None:
    parts = tmp_path / "attention" / "nvidia_h200" / "train.parts"
    parts.mkdir(parents=True)
    (parts / "x.parquet.1.tmp").touch()
    (parts / "x_tasks.parquet").touch()
    (path,) = collect(SPEC, [Draw(1, 1)], tmp_path)
    assert check_tables(path, SPEC).startswith("1 tasks")
    assert not parts.exists()


def test_a_broken_gpu_is_given_up_and_leaves_its_tasks_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = threading.Event()

    class SecondBreaks(StandInWorker):
        def time_all(self, task: Task, configs: Sequence[Config]) -> Any:
            if self.gpu == 1:
                broken.set()
                raise WorkerDied([], "the GPU has fallen off the bus")
            assert broken.wait(PATIENCE_S)
            time.sleep(0.05)
            return super().time_all(task, configs)

    monkeypatch.setattr(module, "GpuWorker", SecondBreaks)
    heard = Heard()
    (path,) = collect(SPEC, [Draw(8, 1)], tmp_path, listener=heard, n_gpus=2)
    assert check_tables(path, SPEC).startswith("7 tasks")
    assert sum("given up" in note for note in heard.notes) == 1
    assert heard.notes[-1].startswith("1 shapes were left out")


class Heard:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def stage(self, name: str, total: int) -> None: ...

    def step(self, note: str) -> None:
        self.notes.append(note)


def test_a_half_written_part_is_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInWorker, "n_tasks", 1)
    with pytest.raises(KeyboardInterrupt):
        collect(SPEC, [Draw(2, 1)], tmp_path)
    (part,) = [file for file in tmp_path.rglob("*.parquet") if not is_task_file(file)]
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
    monkeypatch.setattr(StandInWorker, "deadly", SPEC.task(shape, H200).shape_key)
    notes: list[str] = []

    class Listener:
        def stage(self, name: str, total: int) -> None: ...

        def step(self, note: str) -> None:
            notes.append(note)

    (path,) = collect(SPEC, [Draw(2, 1)], tmp_path, listener=Listener())
    assert len(read_tables(path, SPEC)) == 1
    assert any("left out" in note for note in notes)


def _replace(monkeypatch: pytest.MonkeyPatch, stand_in: type) -> None:
    monkeypatch.setattr(module, "GpuWorker" if issubclass(stand_in, StandInWorker) else "CompilePool", stand_in)


def test_two_gpus_share_the_tasks_and_tell_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both_busy = threading.Barrier(2, timeout=PATIENCE_S)
    used: set[int | None] = set()

    class Worker(StandInWorker):
        def time_all(self, task: Task, configs: Sequence[Config]) -> Any:
            if self.gpu not in used:
                used.add(self.gpu)
                both_busy.wait()
            return super().time_all(task, configs)

    class Listener:
        def __init__(self) -> None:
            self.told: list[str] = []
            self.free = threading.Lock()

        def stage(self, name: str, total: int) -> None:
            assert self.free.acquire(blocking=False)
            self.told.append(f"{name} {total}")
            self.free.release()

        def step(self, note: str) -> None:
            self.stage(note, 1)

    _replace(monkeypatch, Worker)
    listener = Listener()
    (path,) = collect(SPEC, [Draw(6, 1)], tmp_path, listener=listener, n_gpus=2)
    shapes = [SPEC.task(shape, H200).shape_key for shape in SPEC.sample_shapes(6, 1)]
    assert used == {0, 1}
    assert sorted(Worker.tasks) == sorted(shapes)
    assert sorted(table.task.shape_key for table in read_tables(path, SPEC)) == sorted(shapes)
    assert sorted(note.split(":")[0] for note in listener.told if "configs in" in note) == sorted(shapes)
    assert "timing 6" in listener.told


def test_a_stopped_run_on_two_gpus_loses_nothing_that_was_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandInWorker, "n_tasks", 3)
    with pytest.raises(KeyboardInterrupt):
        collect(SPEC, [Draw(4, 1), Draw(4, 2)], tmp_path, n_gpus=2)
    assert len(StandInWorker.tasks) >= 3
    monkeypatch.setattr(StandInWorker, "n_tasks", 10**9)
    paths = collect(SPEC, [Draw(4, 1), Draw(4, 2)], tmp_path, n_gpus=2)
    assert len(set(StandInWorker.tasks)) == len(StandInWorker.tasks) == 8
    assert [len(read_tables(path, SPEC)) for path in paths] == [4, 4]


def test_timing_begins_before_the_last_build_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = threading.Event()

    class Worker(StandInWorker):
        def time_all(self, task: Task, configs: Sequence[Config]) -> Any:
            timed.set()
            return super().time_all(task, configs)

    class Pool(StandInPool):
        def compile(self, jobs: Sequence[Any], done: Callable[[CompileResult], None]) -> list[CompileResult]:
            if jobs[0][0] == last:
                assert timed.wait(PATIENCE_S)
            return super().compile(jobs, done)

    last = SPEC.task(SPEC.sample_shapes(2, 1)[1], H200)
    _replace(monkeypatch, Worker)
    _replace(monkeypatch, Pool)
    (path,) = collect(SPEC, [Draw(2, 1)], tmp_path)
    assert len(read_tables(path, SPEC)) == 2


def test_tasks_are_compiled_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Task] = []

    class Pool(StandInPool):
        def compile(self, jobs: Sequence[Any], done: Callable[[CompileResult], None]) -> list[CompileResult]:
            compiled.append(jobs[0][0])
            return super().compile(jobs, done)

    _replace(monkeypatch, Pool)
    collect(SPEC, [Draw(3, 1)], tmp_path)
    assert compiled == [SPEC.task(shape, H200) for shape in SPEC.sample_shapes(3, 1)]


def test_an_error_in_timing_stops_the_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Worker(StandInWorker):
        def time_all(self, task: Task, configs: Sequence[Config]) -> Any:
            raise UserError("GPU: out of memory")

        def close(self) -> None:
            closed.append("worker")

    class Pool(StandInPool):
        def compile(self, jobs: Sequence[Any], done: Callable[[CompileResult], None]) -> list[CompileResult]:
            while jobs[0][0] == last:  # for ever, unless it is told to stop
                done(CompileResult(Status.CORRECT, 1.0))
            return super().compile(jobs, done)

        def close(self) -> None:
            closed.append("compilers")

    last = SPEC.task(SPEC.sample_shapes(2, 1)[1], H200)
    _replace(monkeypatch, Worker)
    _replace(monkeypatch, Pool)
    with pytest.raises(UserError, match="out of memory"):
        collect(SPEC, [Draw(2, 1)], tmp_path)
    assert closed == ["worker", "compilers"]


def test_an_error_in_compiling_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool(StandInPool):
        def compile(self, jobs: Sequence[Any], done: Callable[[CompileResult], None]) -> list[CompileResult]:
            raise OSError("no more processes")

    _replace(monkeypatch, Pool)
    with pytest.raises(OSError, match="no more processes"):
        collect(SPEC, [Draw(2, 1)], tmp_path, n_gpus=2)


@pytest.mark.parametrize("n_shapes", [1, 4])
def test_a_part_that_cannot_be_written_ends_the_run(
    n_shapes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UserError("disk: is full")

    monkeypatch.setattr(book, "write_tables", refuse)
    with pytest.raises(UserError, match="disk: is full"):
        collect(SPEC, [Draw(n_shapes, 1)], tmp_path)
    assert len(StandInWorker.tasks) <= 2  # the one that could not be written, and the one timed meanwhile


def test_gpus_that_differ_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Worker(StandInWorker):
        def __init__(self, n_sms: int | None = None, gpu: int | None = None) -> None:
            super().__init__(n_sms, gpu)
            self.device = H200.with_sms(72) if gpu == 1 else H200

    _replace(monkeypatch, Worker)
    with pytest.raises(UserError, match="GPU 0 is NVIDIA H200 and GPU 1 is NVIDIA H200, 72 SMs"):
        collect(SPEC, [Draw(2, 1)], tmp_path, n_gpus=2)


def test_cores_are_left_to_the_timing_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n_cores, n_compilers in ((16, 11), (4, 1)):
        monkeypatch.setattr(module.os, "cpu_count", lambda n_cores=n_cores: n_cores)
        collect(SPEC, [Draw(1, 1)], tmp_path, n_gpus=2)
        assert StandInPool.n_workers == n_compilers
