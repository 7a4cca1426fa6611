"""The GEMM's machine code: right results in the interpreter, and resources as the spec predicts them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bo_tuner.evaluators.compiling import compile_build
from bo_tuner.kernels import load_kernel
from bo_tuner.space import config_key
from bo_tuner.task import Task, device_named
from tests.interpreted import N_SMS, relative_errors

SPEC = load_kernel("gemm")
ODD_SHAPES = [(1, 64, 96), (7, 96, 64), (67, 160, 96), (130, 96, 224), (131, 224, 160)]


def _task(m: int, n: int, k: int, device: str = "nvidia_h200") -> Task:
    return SPEC.task({"M": m, "N": n, "K": k}, device_named(device))


def test_every_schedule_and_loader_is_right_on_odd_and_prime_sizes() -> None:
    rng = np.random.default_rng(0)
    cases, seen = [], set()
    for m, n, k in ODD_SHAPES:
        pool = SPEC.pool(SPEC.task({"M": m, "N": n, "K": k}, device_named("nvidia_h200").with_sms(N_SMS)))
        kinds = np.array(
            [
                f"{s} {ld} {r}"
                for s, ld, r in zip(*(pool.columns[c] for c in ("schedule", "loader", "raster")), strict=True)
            ]
        )
        for kind in np.unique(kinds):
            seen.add(str(kind))
            cases.append(({"M": m, "N": n, "K": k}, pool.config(int(rng.choice(np.flatnonzero(kinds == kind))))))
    assert {kind.split()[0] for kind in seen} == {"tile", "split_k", "persistent"}
    errors = relative_errors("gemm", cases)
    wrong = [(case, error) for case, error in zip(cases, errors, strict=True) if not error < 5e-3]
    assert not wrong


@pytest.mark.parametrize(
    "config",
    [
        {"block_m": 128, "block_n": 256, "block_k": 64, "num_stages": 3, "num_warps": 8, "loader": "tma", "schedule": "tile"},
        {"block_m": 64, "block_n": 64, "block_k": 128, "num_stages": 4, "num_warps": 4, "loader": "pointer", "schedule": "tile"},
        {"block_m": 16, "block_n": 64, "block_k": 128, "num_stages": 4, "num_warps": 4, "loader": "tma", "schedule": "split_k", "split": 4},
        {"block_m": 128, "block_n": 256, "block_k": 64, "num_stages": 2, "num_warps": 8, "loader": "pointer", "schedule": "split_k", "split": 2},
        {"block_m": 32, "block_n": 128, "block_k": 64, "num_stages": 2, "num_warps": 4, "loader": "pointer", "schedule": "tile"},
        {"block_m": 128, "block_n": 128, "block_k": 64, "num_stages": 4, "num_warps": 8, "loader": "tma", "schedule": "persistent", "programs_per_sm": 1},
        {"block_m": 256, "block_n": 64, "block_k": 32, "num_stages": 5, "num_warps": 8, "loader": "tma", "schedule": "tile"},
    ],
    ids=config_key,
)  # fmt: skip
def test_predicted_shared_memory_is_the_compilers_on_sm_90(config: dict[str, int | str]) -> None:
    compiled = compile_build(SPEC.program.build(config, _task(4096, 4096, 4096)), (9, 0))
    assert compiled.ok, compiled.message
    assert compiled.shared_bytes == _predicted(config, "nvidia_h200")


@pytest.mark.parametrize("device", ["nvidia_a100_sxm4_80gb", "nvidia_b200"])
@pytest.mark.parametrize("schedule", ["tile", "split_k"])
def test_other_architectures_compile_within_the_predicted_shared_memory(device: str, schedule: str) -> None:
    config = {
        "block_m": 128,
        "block_n": 128,
        "block_k": 64,
        "num_stages": 3,
        "num_warps": 8,
        "loader": "pointer",
        "schedule": schedule,
    }
    config |= {"split": 2} if schedule == "split_k" else {}
    compiled = compile_build(SPEC.program.build(config, _task(512, 512, 4096, device)), device_named(device).capability)
    assert compiled.ok, compiled.message
    assert compiled.shared_bytes <= _predicted(config, device)


def test_launch_keys_and_shapes_compile_nothing() -> None:
    device = device_named("nvidia_h200")
    for name in ("group", "raster", "split", "programs_per_sm"):
        parameter = next(p for p in SPEC.space.parameters if p.name == name)
        assert parameter.launch
    builds = set()
    for shape in ({"M": 1000, "N": 4096, "K": 4096}, {"M": 4096, "N": 8192, "K": 2048}):
        task = SPEC.task(shape, device)
        for config in SPEC.pool(task):
            wanted = {"block_m": 128, "block_n": 128, "block_k": 64, "num_stages": 3, "num_warps": 8, "loader": "tma"}
            if wanted.items() <= config.items() and config["schedule"] == "persistent":
                builds.add(SPEC.program.build(config, task).key)
    assert len(builds) == 1


def test_run_time_integers_are_not_specialised() -> None:
    task = _task(4096, 4096, 4096)
    for config in ({"schedule": "tile"}, {"schedule": "split_k"}, {"schedule": "persistent"}):
        full = {
            "block_m": 128,
            "block_n": 128,
            "block_k": 64,
            "num_stages": 3,
            "num_warps": 8,
            "loader": "tma",
            **config,
        }
        build = SPEC.program.build(full, task)
        integers = {name for name, kind in build.signature.items() if kind == "i32"}
        free = integers - {"N", "K"}  # always multiples of 32: one class, promised to the compiler
        assert free <= set(build.function.do_not_specialize)
        assert not free & set(build.divisible)


def _predicted(config: dict[str, int | str], device: str) -> int:
    columns = {name: np.array([value]) for name, value in config.items()}
    return int(SPEC.shared_bytes(columns, _task(4096, 4096, 4096, device))[0])


def test_reference_is_float32() -> None:
    task = _task(3, 64, 64)
    buffers = SPEC.program.buffers(task, 0, "cpu")
    a, b = buffers.inputs
    expected = sum(float(x) * float(y) for x, y in zip(a[0], b[1], strict=True))
    assert math.isclose(float(SPEC.program.reference(buffers)[0, 1]), expected, rel_tol=1e-4)
