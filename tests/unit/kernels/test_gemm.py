"""The GEMM's space: counts, canonical form, refusals, features, shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bo_tuner.errors import UserError
from bo_tuner.kernels import load_kernel
from bo_tuner.kernels.gemm import GemmSpec
from bo_tuner.kernels.gemm_tiles import has_strip, main_and_strip, stored_in_halves, swapped
from bo_tuner.space import Pool, config_key
from bo_tuner.task import Device, Task, device_named, known_devices
from tests.unit.kernels.visiting import gemm_order

SPEC = load_kernel("gemm")
H200 = device_named("nvidia_h200")
BLOCKS_M, BLOCKS_N = (
    tuple(int(value) for p in SPEC.space.parameters if p.name == name for value in p.values)
    for name in ("block_m", "block_n")
)


def _task(m: int, n: int, k: int, device: Device = H200) -> Task:
    return SPEC.task({"M": m, "N": n, "K": k}, device)


@pytest.mark.parametrize(
    ("m", "n", "k", "least"),
    [
        (1, 4096, 4096, 500),
        (1, 512, 7168, 500),
        (16, 28672, 8192, 500),
        (77, 4096, 1536, 500),
        (1024, 4096, 4096, 3000),
        (1024, 1024, 1024, 3000),
        (4096, 2112, 7168, 3000),
        (8192, 8192, 8192, 3000),
        (2048, 7168, 2048, 3000),
        (16384, 1536, 8960, 3000),
        (12532, 4096, 1376, 2500),
    ],
)
def test_the_space_is_large_enough(m: int, n: int, k: int, least: int) -> None:
    assert len(SPEC.pool(_task(m, n, k))) >= least


@pytest.mark.parametrize(("m", "n", "k"), [(1, 4096, 4096), (130, 96, 224), (2048, 2048, 512)])
def test_the_pool_has_just_what_no_rule_refuses(m: int, n: int, k: int) -> None:
    rng, pool = np.random.default_rng(2), SPEC.pool(_task(m, n, k))
    known, n_valid = set(pool.keys), 0
    assert len(known) == len(pool)
    for row in rng.integers(len(pool), size=150).tolist():
        parameter = pool.parameters[rng.integers(len(pool.parameters))]
        config = {**pool.config(row), parameter.name: parameter.values[rng.integers(len(parameter.values))]}
        valid = SPEC.space.why_invalid(config, pool.task) is None
        assert valid == (config_key(config) in known), config
        n_valid += valid
    assert 0 < n_valid < 150


@pytest.mark.parametrize(("m", "n", "k"), [(67, 1024, 512), (130, 4096, 4096), (777, 1024, 2048), (2048, 2048, 512)])
def test_no_two_configs_visit_tiles_in_the_same_order_with_the_same_code(m: int, n: int, k: int) -> None:
    task = _task(m, n, k)
    pool, grids = SPEC.pool(task), ("split",)
    block_m, block_n = pool.columns["block_m"], pool.columns["block_n"]
    strip = has_strip(block_m) | has_strip(block_n)
    seen: dict[tuple[object, ...], str] = {}
    for row in np.flatnonzero((strip | (block_m >= min(m, 128))) & (pool.columns["num_stages"] == 3)).tolist():
        code = SPEC.program.build(pool.config(row), task).key
        identity = (code, *(pool.columns[name][row] for name in grids), _visits(pool, row))
        assert identity not in seen, (seen[identity], pool.keys[row])
        seen[identity] = pool.keys[row]
    assert len(seen) > 80


def test_different_compile_keys_are_different_code() -> None:
    task = _task(777, 1024, 2048)
    launch = {p.name for p in SPEC.space.parameters if p.launch}
    compiled = [{name: value for name, value in config.items() if name not in launch} for config in SPEC.pool(task)]
    distinct = {tuple(config.items()): config for config in compiled}
    assert len({SPEC.program.build(config, task).key for config in distinct.values()}) == len(distinct)


def _visits(pool: Pool, row: int) -> tuple[tuple[int, int], ...]:
    c, shape = {name: column[row].item() for name, column in pool.columns.items()}, pool.task.shape
    n_m, n_n = -(-shape["M"] // c["block_m"]), -(-shape["N"] // c["block_n"])
    order = gemm_order(n_m, n_n, c["raster"], c["group"])
    assert len(order) == len(set(order)) == n_m * n_n
    return tuple(order)


@pytest.mark.parametrize(
    ("size", "parts"),
    [
        (16, (16, 0)),
        (96, (64, 32)),
        (160, (128, 32)),
        (192, (128, 64)),
        (256, (256, 0)),
        (288, (256, 32)),
        (320, (256, 64)),
    ],
)
def test_a_block_is_a_power_of_two_and_a_strip(size: int, parts: tuple[int, int]) -> None:
    assert main_and_strip(size) == parts
    assert has_strip(size) == (parts[1] > 0)


def test_every_strip_is_a_block_that_the_compiler_takes() -> None:
    for size in {*BLOCKS_M, *BLOCKS_N}:
        main, strip = main_and_strip(size)
        assert main + strip == size
        assert main.bit_count() == 1
        assert strip == 0 or (strip.bit_count() == 1 and 16 <= strip < main)


def test_few_rows_are_the_columns_of_the_mma() -> None:
    assert all(swapped(block_m, 64) for block_m in (16, 32, 96, 160, 288))
    assert not any(swapped(block_m, 64) for block_m in (64, 128, 192, 256, 320))
    assert not any(swapped(block_m, block_n) for block_m in (16, 96, 128) for block_n in (32, 96, 160))


def test_large_tiles_are_stored_in_halves() -> None:
    assert stored_in_halves(128, 256)
    assert stored_in_halves(256, 128)
    assert not stored_in_halves(128, 128)
    assert not stored_in_halves(64, 256)


def test_layout_of_an_array_is_that_of_each_tile() -> None:
    block_m, block_n = (sizes.reshape(-1) for sizes in np.meshgrid(BLOCKS_M, BLOCKS_N))
    for layout in (swapped, stored_in_halves):
        alone = [layout(m, n) for m, n in zip(block_m.tolist(), block_n.tolist(), strict=True)]
        assert all(isinstance(value, bool) for value in alone)
        assert layout(block_m, block_n).tolist() == alone
    assert has_strip(block_m).tolist() == [bool(has_strip(size)) for size in block_m.tolist()]


def test_a_strip_lies_along_whole_rows_of_the_mma() -> None:
    for shape in ((130, 4096, 4096), (300, 320, 256), (8192, 8192, 8192)):
        columns = SPEC.pool(_task(*shape)).columns
        rows, more = has_strip(columns["block_m"]), has_strip(columns["block_n"])
        strip = rows | more
        assert rows.any()
        assert more.any()
        assert not (rows & more).any()
        assert set(columns["schedule"][strip]) == {"tile"}
        assert set(columns["loader"][strip]) == {"tma"}
        mma_rows = np.where(swapped(columns["block_m"], columns["block_n"]), columns["block_n"], columns["block_m"])
        assert (mma_rows[strip] % 64 == 0).all()


def test_another_layout_is_another_source() -> None:
    class WithoutLayout(GemmSpec):
        layout_modules = ()

    assert SPEC.source_hash == GemmSpec().source_hash != WithoutLayout().source_hash != ""


def test_copy_engine_needs_hopper() -> None:
    for device in known_devices().values():
        columns = SPEC.pool(_task(1024, 4096, 4096, device)).columns
        assert ("tma" in columns["loader"]) == (device.capability >= (9, 0))
        assert (has_strip(columns["block_m"]).any()) == (device.capability >= (9, 0))


def test_less_shared_memory_means_fewer_configs() -> None:
    small = _task(1024, 4096, 4096, replace(H200, name="small", shared_per_block_bytes=65536))
    pool = SPEC.pool(small)
    assert 0 < len(pool) < len(SPEC.pool(_task(1024, 4096, 4096)))
    assert SPEC.shared_bytes(pool.columns, small).max() <= 65536


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


GOOD: dict[str, int | str] = {"block_m": 128, "block_n": 128, "block_k": 64, "num_stages": 4, "num_warps": 8}
GOOD |= {"loader": "tma", "schedule": "tile", "raster": "m", "group": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"block_m": 256, "block_n": 256}, "over 192 accumulator registers"),
        ({"block_n": 256, "num_stages": 5}, "shared memory over"),
        ({"block_m": 32, "num_warps": 4}, "block_m too thin"),
        ({"block_m": 256, "block_n": 64}, "block_n too narrow"),
        ({"block_n": 64}, "tiles too small"),
        ({"block_m": 64, "block_n": 256, "block_k": 256}, "block_k of another size of tile"),
        ({"loader": "pointer"}, "pointer too slow"),
        ({"block_m": 160, "block_n": 96}, "a block that is no power of two"),
        ({"block_m": 96, "block_n": 32}, "a block that is no power of two"),
        ({"block_m": 192, "schedule": "persistent"}, "a block that is no power of two"),
        ({"block_m": 48}, "block_m: 48 is not one of"),
    ],
)
def test_every_rejection_has_its_reason(change: dict[str, int | str], reason: str) -> None:
    task = _task(8192, 8192, 8192)
    assert SPEC.space.why_invalid(GOOD, task) is None
    assert (SPEC.space.why_invalid({**GOOD, **change}, task) or "").startswith(reason)


def test_every_rule_rejects_something() -> None:
    shapes = [(1, 4096, 4096), (67, 32, 32), (130, 4096, 4096), (12532, 4096, 1376), (8192, 8192, 8192)]
    pools = [SPEC.pool(_task(*shape, device)) for shape in shapes for device in known_devices().values()]
    idle = {rule.reason for rule in SPEC.space.rules if not any(pool.rejected[rule.reason] for pool in pools)}
    assert idle <= {"less than one 16 x 8 MMA tile a warp"}  # the smallest tile of 4 warps, and a rule before, imply it


@pytest.mark.parametrize("device", sorted(known_devices()))
def test_features_are_finite_whatever_the_order_of_rows(device: str) -> None:
    rng = np.random.default_rng(3)
    for shape in [*SPEC.sample_shapes(12, 7), {"M": 1, "N": 32, "K": 32}, {"M": 3001, "N": 320, "K": 96}]:
        pool = SPEC.pool(SPEC.task(shape, device_named(device)))
        features = SPEC.features(pool)
        order = rng.permutation(len(pool))
        shuffled = SPEC.features(_in_order(pool, order))
        for name, values in features.items():
            assert values.shape == (len(pool),), name
            assert np.isfinite(values).all(), name
            np.testing.assert_array_equal(values[order], shuffled[name], err_msg=name)


def _in_order(pool: Pool, order: Sequence[int]) -> Pool:
    columns, active = ({name: column[order] for name, column in of.items()} for of in (pool.columns, pool.active))
    return replace(pool, columns=columns, active=active)


def test_features_are_ratios_to_the_device() -> None:
    """Half the multiprocessors with half the tiles fill alike."""
    features = []
    for task in (_task(4096, 4096, 4096), _task(2048, 4096, 4096, H200.with_sms(66))):
        pool = SPEC.pool(task)
        halved = ~has_strip(pool.columns["block_m"]) & (pool.columns["group"] == 1)
        features.append({name: values[halved] for name, values in SPEC.features(pool).items()})
    for name in ("log2_waves", "last_wave_use", "chip_use", "shared_share", "resident_blocks"):
        np.testing.assert_allclose(features[0][name], features[1][name], err_msg=name)


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
