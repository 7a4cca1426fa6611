"""The GEMM schedules under trial compute what the GEMM does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bo_tuner.evaluators.compiling import compile_build
from bo_tuner.kernels import load_kernel
from bo_tuner.task import device_named

SCRIPT = """
import json
from bo_tuner.kernels import load_kernel
from bo_tuner.task import device_named
from experiments.gemm_variants import PROGRAM
spec, device, errors = load_kernel("gemm"), device_named("nvidia_h200").with_sms(7), {}
small = {"block_m": 64, "block_n": 64, "block_k": 32, "num_stages": 3, "num_warps": 4}
small |= {"loader": "tma", "raster": "n", "group": 2}
variants = [{**small, "schedule": "stream_k", "streamed": 1}, {**small, "schedule": "stream_k", "streamed": 2}]
variants += [{**small, "schedule": "extended", "extra_m": 64}, {**small, "schedule": "extended", "extra_n": 32}]
for shape in ({"M": 67, "N": 160, "K": 224}, {"M": 130, "N": 960, "K": 352}):
    task = spec.task(shape, device)
    buffers = PROGRAM.buffers(task, 0, "cpu")
    reference = PROGRAM.reference(buffers)
    for variant in variants:
        build, launch = PROGRAM.build(variant, task), PROGRAM.launch(variant, task, buffers)
        for _ in range(2):
            buffers.output.fill_(float("nan"))
            build.function[launch.grid](*launch.args, num_warps=4, num_stages=3)
        error = (buffers.output.float() - reference).norm() / reference.norm()
        errors[str((task.shape_key, variant))] = float(error)
print(json.dumps(errors))
"""


def test_variants_are_right_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, cwd=root, check=False
    )
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout.splitlines()[-1])
    assert len(errors) == 8
    assert all(error < 5e-3 for error in errors.values()), errors


@pytest.mark.parametrize("schedule", ["extended", "stream_k"])
def test_variants_compile_for_hopper(schedule: str) -> None:
    from experiments.gemm_variants import PROGRAM, configs

    task = load_kernel("gemm").task({"M": 171, "N": 4096, "K": 4096}, device_named("nvidia_h200"))
    config = next(config for config in configs() if config["schedule"] == schedule)
    compiled = compile_build(PROGRAM.build(config, task), (9, 0))
    assert compiled.ok, compiled.message
    assert compiled.shared_bytes <= task.device.shared_per_block_bytes
