"""The GEMM's machine code: right results in the interpreter, and resources as the spec predicts them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bo_tuner.evaluators.compiling import compile_build
from bo_tuner.kernels import load_kernel
from bo_tuner.kernels.gemm_tiles import stored_in_halves, swapped
from bo_tuner.space import Pool, config_key
from bo_tuner.task import Task, device_named
from tests.interpreted import N_SMS, Case, relative_errors
from tests.unit.kernels.visiting import first_written, gemm_order

SPEC = load_kernel("gemm")
ODD_SHAPES = [(1, 64, 96), (7, 96, 512), (61, 96, 608), (67, 160, 320), (130, 96, 224), (131, 224, 160)]


def _task(m: int, n: int, k: int, device: str = "nvidia_h200") -> Task:
    return SPEC.task({"M": m, "N": n, "K": k}, device_named(device))


def test_every_schedule_and_loader_is_right_on_odd_and_prime_sizes() -> None:
    rng, cases, seen = np.random.default_rng(0), [], set()
    for shape in ODD_SHAPES:
        pool = _small_pool(*shape)
        names = ("schedule", "loader", "raster")
        kinds = np.array([" ".join(kind) for kind in zip(*(pool.columns[name] for name in names), strict=True)])
        for kind in np.unique(kinds):
            seen.add(str(kind))
            cases.append((pool.task.shape, pool.config(int(rng.choice(np.flatnonzero(kinds == kind))))))
    assert seen == {
        *(f"tile {loader} {raster}" for loader in ("pointer", "tma") for raster in "mn"),
        *(f"split_k {loader} m" for loader in ("pointer", "tma")),
        *(f"persistent tma {raster}" for raster in "mn"),
    }
    assert not _wrong(cases)


def test_every_block_with_a_strip_is_right_on_odd_and_prime_sizes() -> None:
    cases = []
    for name, sizes, shape in (
        ("block_m", (96, 160, 192), (193, 96, 96)),
        ("block_m", (288,), (331, 96, 96)),
        ("block_n", (96, 160, 192), (67, 224, 96)),
        ("block_n", (320,), (71, 352, 160)),
    ):
        cases += _one_of_each(_small_pool(*shape), name, sizes)
    assert len(cases) == 8
    assert not _wrong(cases)


def test_swapped_operands_are_right_on_odd_and_prime_sizes() -> None:
    cases = []
    for sizes, shape in (((16, 32), (37, 160, 96)), ((96, 160), (131, 160, 96)), ((288,), (293, 96, 160))):
        pool = _small_pool(*shape)
        for block_n in (64, 128):
            cases += _one_of_each(pool, "block_m", sizes, (pool.columns["block_n"] == block_n) | (sizes == (288,)))
    for kind in ("pointer", "split_k"):  # few rows, by other means than tiles and the copy engine
        pool = _small_pool(13, 128, 256)
        of_kind = (pool.columns["loader"] == kind) | (pool.columns["schedule"] == kind)
        cases += _one_of_each(pool, "block_m", (16, 32), of_kind & (pool.columns["block_n"] % 64 == 0))
    assert all(swapped(config["block_m"], config["block_n"]) for _, config in cases)
    assert not _wrong(cases)


def test_large_tiles_stored_in_halves_are_right_over_several_rounds() -> None:
    pool = _small_pool(263, 544, 96, n_sms=2)
    persistent = pool.columns["schedule"] == "persistent"
    cases = [
        case
        for block_m, block_n in ((128, 256), (256, 128))
        for case in _one_of_each(pool, "block_m", (block_m,), persistent & (pool.columns["block_n"] == block_n))
    ]
    assert all(stored_in_halves(config["block_m"], config["block_n"]) for _, config in cases)
    assert not _wrong(cases, n_sms=2)


def _small_pool(m: int, n: int, k: int, n_sms: int = N_SMS) -> Pool:
    return SPEC.pool(SPEC.task({"M": m, "N": n, "K": k}, device_named("nvidia_h200").with_sms(n_sms)))


def _one_of_each(pool: Pool, name: str, values: Sequence[int], among: Any = True) -> list[Case]:
    """A config of the pool for each value of a parameter, chosen at random."""
    rng = np.random.default_rng(1)
    rows = [rng.choice(np.flatnonzero((pool.columns[name] == value) & among)) for value in values]
    return [(pool.task.shape, pool.config(int(row))) for row in rows]


def _wrong(cases: Sequence[Case], n_sms: int = N_SMS) -> list[tuple[Case, float]]:
    cases = [(dict(shape), config) for shape, config in cases]
    errors = relative_errors("gemm", cases, n_sms=n_sms)
    return [(case, error) for case, error in zip(cases, errors, strict=True) if not error < 5e-3]


def test_tiles_are_visited_in_the_order_of_the_config() -> None:
    m, n, k = 51, 96, 32
    config = {"block_m": 16, "block_n": 32, "block_k": 32, "num_stages": 4, "num_warps": 4, "loader": "tma"}
    orders = [("m", 1), ("m", 3), ("n", 1), ("n", 2)]
    cases = [({"M": m, "N": n, "K": k}, {**config, "schedule": "tile", "raster": r, "group": g}) for r, g in orders]
    expected = [
        [[[16 * row, 32 * column], min(16, m - 16 * row) * 32] for row, column in gemm_order(4, 3, raster, group)]
        for raster, group in orders
    ]
    assert first_written("gemm", cases) == expected


def _config(m: int, n: int, k: int, stages: int, warps: int, loader: str, schedule: str) -> dict[str, int | str]:
    config: dict[str, int | str] = {"block_m": m, "block_n": n, "block_k": k, "num_stages": stages, "num_warps": warps}
    return config | {"loader": loader, "schedule": schedule}


@pytest.mark.parametrize(
    "config",
    [
        _config(128, 256, 64, 3, 8, "tma", "tile"),
        _config(64, 64, 128, 4, 4, "pointer", "tile"),
        _config(16, 64, 128, 4, 4, "tma", "split_k"),
        _config(64, 256, 64, 2, 8, "pointer", "split_k"),
        _config(32, 32, 64, 8, 4, "pointer", "tile"),
        _config(128, 128, 64, 4, 8, "tma", "persistent"),
        _config(256, 64, 32, 5, 8, "tma", "tile"),
        # strips of rows and of columns
        _config(192, 128, 64, 4, 8, "tma", "tile"),
        _config(288, 128, 32, 7, 8, "tma", "tile"),
        _config(64, 96, 128, 5, 4, "tma", "tile"),
        _config(128, 320, 64, 3, 8, "tma", "tile"),
        # B's rows as those of the MMA, with and without a strip
        _config(16, 128, 64, 6, 4, "tma", "tile"),
        _config(32, 64, 64, 3, 4, "pointer", "split_k"),
        _config(96, 64, 64, 6, 4, "tma", "tile"),
        _config(288, 128, 32, 2, 8, "tma", "tile"),
        # stored in halves
        _config(128, 256, 64, 3, 8, "tma", "persistent"),
        _config(256, 128, 32, 7, 8, "tma", "persistent"),
    ],
    ids=config_key,
)
def test_predicted_shared_memory_is_the_compilers_on_sm_90(config: dict[str, int | str]) -> None:
    assert _compiled(config, "nvidia_h200") == _predicted(config, "nvidia_h200")


#: Without the copy engine; with it, on Blackwell.
POINTER = [
    _config(128, 128, 64, 3, 8, "pointer", "tile"),
    _config(64, 128, 64, 3, 8, "pointer", "split_k"),
    _config(256, 128, 32, 3, 8, "pointer", "tile"),  # the result is more than the pipeline on sm_80
]
TMA = [
    _config(192, 128, 64, 4, 8, "tma", "tile"),
    _config(192, 128, 64, 5, 8, "tma", "tile"),
    _config(32, 128, 64, 4, 4, "tma", "tile"),
    _config(128, 256, 64, 3, 8, "tma", "persistent"),
]


@pytest.mark.parametrize(
    ("device", "config"),
    [
        *(("nvidia_a100_sxm4_80gb", config) for config in POINTER),
        *(("nvidia_b200", config) for config in POINTER + TMA),
    ],
)
def test_other_architectures_compile_within_the_predicted_shared_memory(
    device: str, config: dict[str, int | str]
) -> None:
    assert _compiled(config, device) <= _predicted(config, device)


def test_launch_keys_and_shapes_compile_nothing() -> None:
    assert {p.name for p in SPEC.space.parameters if p.launch} == {"group", "raster", "split"}
    for wanted in (
        _config(128, 128, 64, 4, 8, "tma", "persistent"),
        _config(192, 128, 64, 4, 8, "tma", "tile"),
        _config(64, 64, 64, 4, 4, "tma", "split_k"),
    ):
        keys = []
        for task in (_task(120, 4096, 4096), _task(1000, 4096, 4096), _task(4096, 8192, 2048)):
            same = [config for config in SPEC.pool(task) if wanted.items() <= config.items()]
            keys += [SPEC.program.build(config, task).key for config in same]
        assert len(keys) > 1
        assert len(set(keys)) == 1


def test_run_time_integers_are_not_specialised() -> None:
    task = _task(4096, 4096, 4096)
    for block_m, schedule in ((128, "tile"), (192, "tile"), (128, "split_k"), (128, "persistent")):
        build = SPEC.program.build(_config(block_m, 128, 64, 3, 8, "tma", schedule), task)
        integers = {name for name, kind in build.signature.items() if kind == "i32"}
        free = integers - {"N", "K"}  # always multiples of 32: one class, promised to the compiler
        assert free <= set(build.function.do_not_specialize)
        assert not free & set(build.divisible)


def _compiled(config: dict[str, int | str], device: str) -> int:
    """Shared memory of a config as the compiler allocates it for a device."""
    task = _task(4096, 4096, 4096, device)
    compiled = compile_build(SPEC.program.build(config, task), task.device.capability)
    assert compiled.ok, compiled.message
    return compiled.shared_bytes


def _predicted(config: dict[str, int | str], device: str) -> int:
    columns = {name: np.array([value]) for name, value in config.items()}
    return int(SPEC.shared_bytes(columns, _task(4096, 4096, 4096, device))[0])


def test_reference_is_float32() -> None:
    task = _task(3, 64, 64)
    buffers = SPEC.program.buffers(task, 0, "cpu")
    a, b = buffers.inputs
    expected = sum(float(x) * float(y) for x, y in zip(a[0], b[1], strict=True))
    assert math.isclose(float(SPEC.program.reference(buffers)[0, 1]), expected, rel_tol=1e-4)
