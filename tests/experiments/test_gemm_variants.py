"""The GEMM schedules under trial compute what the GEMM does."""

from __future__ import annotations

import pytest

from bo_tuner.evaluators.compiling import compile_build
from bo_tuner.kernels import load_kernel
from bo_tuner.task import device_named
from tests.interpreted import relative_errors

SMALL = {"block_m": 64, "block_n": 64, "block_k": 32, "num_stages": 3, "num_warps": 4}
SMALL |= {"loader": "tma", "raster": "n", "group": 2}
VARIANTS = (
    {"schedule": "stream_k", "streamed": 1},
    {"schedule": "stream_k", "streamed": 2},
    {"schedule": "extended", "extra_m": 64},
    {"schedule": "extended", "extra_n": 32},
)


def test_variants_are_right_in_the_interpreter() -> None:
    shapes = ({"M": 67, "N": 160, "K": 224}, {"M": 130, "N": 960, "K": 352})
    cases = [(shape, {**SMALL, **variant}) for shape in shapes for variant in VARIANTS]
    errors = relative_errors("gemm", cases, program="experiments.gemm_variants", n_sms=7)
    assert len(errors) == 8
    assert all(error < 5e-3 for error in errors), errors


@pytest.mark.parametrize("schedule", ["extended", "stream_k"])
def test_variants_compile_for_hopper(schedule: str) -> None:
    from experiments.gemm_variants import PROGRAM, configs

    task = load_kernel("gemm").task({"M": 171, "N": 4096, "K": 4096}, device_named("nvidia_h200"))
    config = next(config for config in configs() if config["schedule"] == schedule)
    compiled = compile_build(PROGRAM.build(config, task), (9, 0))
    assert compiled.ok, compiled.message
    assert compiled.shared_bytes <= task.device.shared_per_block_bytes
