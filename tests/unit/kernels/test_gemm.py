"""The GEMM's space: counts, canonical form, refusals, features, shapes."""

from __future__ import annotations

import numpy as np
import pytest

from bo_tuner.errors import UserError
from bo_tuner.kernels import load_kernel
from bo_tuner.space import Pool
from bo_tuner.task import Task, device_named

SPEC = load_kernel("gemm")
H200 = device_named("nvidia_h200")


def _task(m: int, n: int, k: int) -> Task:
    return SPEC.task({"M": m, "N": n, "K": k}, H200)


@pytest.mark.parametrize(
    ("m", "n", "k", "least"),
    [
        (1, 4096, 4096, 500),
        (1, 512, 7168, 500),
        (1024, 4096, 4096, 1500),
        (8192, 8192, 8192, 1500),
        (12532, 4096, 1376, 1500),
    ],
)
def test_the_space_is_large_enough(m: int, n: int, k: int, least: int) -> None:
    assert len(SPEC.pool(_task(m, n, k))) >= least


@pytest.mark.parametrize(("m", "n", "k"), [(130, 4096, 4096), (777, 1024, 2048), (2048, 2048, 512)])
def test_no_two_configs_visit_tiles_in_the_same_order_with_the_same_code(m: int, n: int, k: int) -> None:
    pool = SPEC.pool(_task(m, n, k))
    seen: dict[tuple[object, ...], str] = {}
    launch = {"raster", "group"}
    for row in range(0, len(pool)):
        if pool.columns["block_m"][row] < 128 or pool.columns["num_stages"][row] != 3:
            continue
        code = tuple(pool.columns[p.name][row] for p in pool.parameters if p.name not in launch)
        identity = (code, _visits(pool, row))
        assert identity not in seen, (seen[identity], pool.keys[row])
        seen[identity] = pool.keys[row]


def _visits(pool: Pool, row: int) -> bytes:
    """The order of tiles, worked out a tile at a time as the kernel does."""
    c, shape = {name: column[row] for name, column in pool.columns.items()}, pool.task.shape
    n_m, n_n = -(-shape["M"] // c["block_m"]), -(-shape["N"] // c["block_n"])
    banded, other = (n_n, n_m) if c["raster"] == "n" else (n_m, n_n)
    tile = np.arange(n_m * n_n)
    band = tile // (c["group"] * other)
    width = np.minimum(banded - band * c["group"], c["group"])
    inside = tile - band * c["group"] * other
    first, second = band * c["group"] + inside % width, inside // width
    pair = (second, first) if c["raster"] == "n" else (first, second)
    assert sorted(zip(*pair, strict=True)) == [(i, j) for i in range(n_m) for j in range(n_n)]
    return np.stack(pair).tobytes()


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"M": 0, "N": 64, "K": 64}, "M: 0"),
        ({"M": 8, "N": 64, "K": -1}, "K: -1"),
        ({"M": 8, "N": 100, "K": 64}, "N: 100 is not a multiple of 32"),
        ({"M": 8, "N": 64}, "K: is missing"),
        ({"M": 8, "N": 64, "K": 64, "Q": 1}, "Q: is no dimension"),
        ({"M": 2**20, "N": 64, "K": 4096}, "2^31"),
    ],
)
def test_a_shape_that_is_not_allowed_is_refused_by_name(shape: dict[str, int], words: str) -> None:
    with pytest.raises(UserError, match=words.replace("^", r"\^")):
        SPEC.task(shape, H200)


def test_every_rejection_has_its_reason_and_a_count() -> None:
    pool = SPEC.pool(_task(4096, 4096, 4096))
    for config, reason in (
        (
            {
                "block_m": 256,
                "block_n": 256,
                "block_k": 64,
                "num_stages": 2,
                "num_warps": 8,
                "loader": "tma",
                "schedule": "tile",
                "raster": "m",
                "group": 1,
            },
            "accumulator",
        ),
        (
            {
                "block_m": 128,
                "block_n": 256,
                "block_k": 128,
                "num_stages": 5,
                "num_warps": 8,
                "loader": "tma",
                "schedule": "tile",
                "raster": "m",
                "group": 1,
            },
            "shared memory",
        ),
        (
            {
                "block_m": 32,
                "block_n": 64,
                "block_k": 64,
                "num_stages": 2,
                "num_warps": 4,
                "loader": "tma",
                "schedule": "tile",
                "raster": "m",
                "group": 1,
            },
            "thin",
        ),
    ):
        why = SPEC.space.why_invalid(config, pool.task)
        assert why is not None
        assert reason in why
        assert pool.rejected[why] > 0


def test_features_are_finite_and_ratios_do_not_name_the_device() -> None:
    for shape in SPEC.sample_shapes(12, 7):
        features = SPEC.features(SPEC.pool(SPEC.task(shape, H200)))
        assert all(np.isfinite(values).all() for values in features.values())


def test_default_config_is_valid_everywhere() -> None:
    for shape in SPEC.sample_shapes(40, 8):
        task = SPEC.task(shape, H200)
        assert SPEC.space.why_invalid(SPEC.default_config(task), task) is None


def test_shapes_are_a_prefix_and_no_shape_is_in_two_splits() -> None:
    def keys(n: int, seed: int) -> list[tuple[int, ...]]:
        return [tuple(shape.values()) for shape in SPEC.sample_shapes(n, seed)]

    assert keys(64, 1) == keys(160, 1)[:64]
    assert not set(keys(160, 1)) & set(keys(200, 2))
    assert not (set(keys(160, 1)) | set(keys(200, 2))) & set(keys(200, 99))
    assert len(set(keys(200, 2))) == 200
