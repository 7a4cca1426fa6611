"""On a real GPU: kernels are right, times are plausible, a part of the chip is slower than the whole."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bo_tuner.collect import Draw, collect
from bo_tuner.evaluators.live import LiveEvaluator, gpu_is_there
from bo_tuner.evaluators.worker import GpuWorker
from bo_tuner.kernels import load_kernel
from bo_tuner.storage.schema import is_task_file
from bo_tuner.storage.tables import check_tables
from bo_tuner.study import Status

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpu_is_there(), reason="no CUDA GPU")]

SHAPES = {
    "gemm": {"M": 777, "N": 1056, "K": 992},
    "attention": {"batch": 2, "heads": 6, "kv_heads": 2, "seq": 333, "head_dim": 64},
}


@pytest.fixture(scope="module")
def gpu() -> Iterator[LiveEvaluator]:
    with LiveEvaluator() as evaluator:
        yield evaluator


@pytest.mark.parametrize("kernel", SHAPES)
def test_random_configs_are_right_and_timed(kernel: str, gpu: LiveEvaluator) -> None:
    spec = load_kernel(kernel)
    task = spec.task(SHAPES[kernel], gpu.device)
    pool, evaluator = spec.pool(task), gpu.open(task)
    for row in np.random.default_rng(0).choice(len(pool), 8, replace=False):
        measurement = evaluator.evaluate(pool.config(int(row)))
        assert measurement.status is Status.CORRECT, (pool.keys[row], measurement)
        assert 1 < measurement.time_us < 1e4
    assert min(gpu.baselines_us.values()) > 1


def test_every_attention_tile_of_a_tiny_shape_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_kernel("attention")
    monkeypatch.setattr(
        type(spec), "draw_shape", lambda self, rng: {**SHAPES["attention"], "seq": int(rng.integers(1, 17))}
    )
    (path,) = collect(spec, [Draw(1, 1)], tmp_path)
    assert check_tables(path, spec).startswith("1 tasks")


def test_a_part_of_the_chip_is_a_slower_device() -> None:
    spec = load_kernel("gemm")
    times = []
    for n_sms in (None, 32):
        worker = GpuWorker(n_sms)
        try:
            task = spec.task({"M": 4096, "N": 4096, "K": 2048}, worker.device)
            rows, _ = worker.time_some(task, [spec.default_config(task)], 5)
        finally:
            worker.close()
        assert rows[0].status is Status.CORRECT
        times.append(sorted(rows[0].readings_us)[2])
    assert times[1] > 1.5 * times[0]


def test_a_killed_recording_goes_on_with_nothing_lost(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "bo_tuner.cli", "collect", "attention", "--sample", "4", "--seed", "7"]
    line += ["--out", str(tmp_path)]
    recorder = subprocess.Popen(line)
    while not (whole := _parts(tmp_path)) and recorder.poll() is None:
        time.sleep(0.1)
    recorder.kill()
    recorder.wait()
    kept = {file.name: file.read_bytes() for file in whole}
    assert kept
    again = subprocess.run(line, capture_output=True, text=True, check=True)
    assert not any(name.removesuffix(".parquet") in again.stderr + again.stdout for name in kept)
    (path,) = tmp_path.rglob("seed7.parquet")
    assert check_tables(path, load_kernel("attention")).startswith("4 tasks")


def _parts(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("seed7.parts/*.parquet") if not is_task_file(file)]
