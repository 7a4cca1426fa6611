"""Causal attention without a GPU: its space, costs, features and distribution of shapes."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_tuner.errors import UserError
from bo_tuner.kernels import load_kernel
from bo_tuner.kernels.attention import AttentionSpec
from bo_tuner.space import Pool
from bo_tuner.task import device_named, known_devices

SPEC = AttentionSpec()
H200 = device_named("nvidia_h200")
LAUNCH = {parameter.name for parameter in SPEC.space.parameters if parameter.launch}


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, int]:
    kv_heads = draw(st.integers(1, 12))
    return {
        "batch": draw(st.integers(1, 64)),
        "heads": kv_heads * draw(st.integers(1, 10)),
        "kv_heads": kv_heads,
        "seq": draw(st.integers(1, 20000)),
        "head_dim": draw(st.sampled_from((64, 128))),
    }


def shape_of(seq: int, head_dim: int = 128, batch: int = 2, heads: int = 8, kv_heads: int = 4) -> dict[str, int]:
    return {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}


def pool_of(shape: dict[str, int]) -> Pool:
    return SPEC.space.pool(SPEC.task(shape, H200))


def builds(pool: Pool) -> set[tuple[object, ...]]:
    return {tuple(value for name, value in config.items() if name not in LAUNCH) for config in pool}


def test_is_found_by_name() -> None:
    assert load_kernel("attention").name == "attention"


@given(shapes())
@settings(deadline=None, max_examples=50)
def test_every_config_is_valid_canonical_and_unique(shape: dict[str, int]) -> None:
    pool = pool_of(shape)
    assert len(set(pool.keys)) == len(pool) > 0
    for row in range(0, len(pool), 17):
        assert SPEC.space.why_invalid(pool.config(row), pool.task) is None
    assert pool.index(SPEC.default_config(pool.task)) >= 0


@pytest.mark.parametrize(("head_dim", "n_builds"), [(64, 144), (128, 124)])
def test_size_of_the_space(head_dim: int, n_builds: int) -> None:
    pool = pool_of(shape_of(4096, head_dim))
    assert len(builds(pool)) == n_builds
    assert len(pool) == 3 * n_builds
    assert len(builds(pool_of(shape_of(257, head_dim)))) == n_builds


def test_enumeration_is_quick() -> None:
    start = time.perf_counter()
    pool_of(shape_of(8192))
    assert time.perf_counter() - start < 0.05


def test_order_exists_only_where_there_are_several_tiles() -> None:
    assert all("order" not in config for config in pool_of(shape_of(1)))
    for config in pool_of(shape_of(100)):
        assert ("order" in config) == (int(config["block_m"]) < 100)


def test_one_head_has_no_order_over_heads() -> None:
    orders = {config["order"] for config in pool_of(shape_of(4096, batch=1, heads=1, kv_heads=1))}
    assert orders == {"ascending", "longest_first"}
    config = {**SPEC.default_config(SPEC.task(shape_of(4096), H200)), "order": "longest_first_all"}
    alone = SPEC.task(shape_of(4096, batch=1, heads=1, kv_heads=1), H200)
    assert SPEC.space.why_invalid(config, alone) == "one head: longest_first_all is longest_first"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"block_m": 64, "num_warps": 8}, "8 warps need"),
        ({"block_m": 256, "num_warps": 4}, "over 32 rows a warp"),
        ({"block_m": 256, "block_n": 128}, "over 192 accumulator registers"),
        ({"block_n": 128, "num_stages": 4}, "shared memory over"),
        ({"block_n": 16}, "block_n: 16 is not one of"),
    ],
)
def test_reasons(change: dict[str, int], reason: str) -> None:
    task = SPEC.task(shape_of(4096), H200)
    config = {**SPEC.default_config(task), "num_warps": 8, **change}
    assert (SPEC.space.why_invalid(config, task) or "").startswith(reason)


def test_copy_engine_needs_hopper() -> None:
    for device in known_devices().values():
        loaders = {config["loader"] for config in SPEC.pool(SPEC.task(shape_of(512), device))}
        assert ("tma" in loaders) == (device.capability >= (9, 0))


def test_less_shared_memory_means_fewer_configs() -> None:
    small = replace(H200, name="small", shared_per_block_bytes=65536)
    pool = SPEC.pool(SPEC.task(shape_of(512), small))
    assert 0 < len(pool) < len(pool_of(shape_of(512)))
    assert SPEC.shared_bytes(pool.columns, pool.task).max() <= 65536


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_dim": 96}, "head_dim: 96 is not 64 or 128"),
        ({"kv_heads": 3}, "kv_heads: 3 does not divide heads, which is 8"),
        ({"seq": 0}, "seq: 0 is not an integer"),
        ({"seq": 2**24}, "seq: 16777216 x head_dim 128 is a head of"),
        ({"batch": 2**28}, "batch: 268435456 x heads 8 makes a grid"),
    ],
)
def test_bad_shape_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SPEC.task({**shape_of(4096), **change}, H200)


def test_costs() -> None:
    shape = shape_of(5, head_dim=64, batch=1, heads=2, kv_heads=1)
    pairs = sum(key <= query for query in range(5) for key in range(5))
    assert SPEC.flops(shape) == 2 * pairs * (2 * 64 + 2 * 64)
    assert SPEC.min_bytes(shape) == 2 * 5 * 64 * (2 + 1 + 1 + 2)


@given(shapes(), st.sampled_from(sorted(known_devices())))
@settings(deadline=None, max_examples=50)
def test_features_are_finite_and_shares_are_shares(shape: dict[str, int], device: str) -> None:
    pool = SPEC.pool(SPEC.task(shape, device_named(device)))
    features = SPEC.features(pool)
    for name, values in features.items():
        assert values.shape == (len(pool),), name
        assert np.isfinite(values).all(), name
    for name in ("useful_share", "makespan_use", "last_wave_use", "padding_m", "shared_share", "masked_steps_share"):
        assert (features[name] > 0).all(), name
        assert (features[name] <= 1 + 1e-9).all(), name
    assert (features["imbalance"] >= 1 - 1e-9).all()


def test_work_matches_a_count_by_hand() -> None:
    pool = pool_of(shape_of(200))
    features = SPEC.features(pool)
    for row in range(0, len(pool), 41):
        config = pool.config(row)
        block_m, block_n = int(config["block_m"]), int(config["block_n"])
        steps = [-(-min(start + block_m, 200) // block_n) for start in range(0, 200, block_m)]
        assert features["imbalance"][row] == pytest.approx(max(steps) / np.mean(steps))
        assert features["useful_share"][row] == pytest.approx(200 * 201 / 2 / (sum(steps) * block_m * block_n))


def test_longest_first_is_expected_to_end_no_later() -> None:
    pool = pool_of(shape_of(4096))
    use = SPEC.features(pool)["makespan_use"]
    order = pool.columns["order"]
    ascending, per_head, over_all = (use[order == name] for name in ("ascending", "longest_first", "longest_first_all"))
    assert (ascending <= per_head + 1e-12).all()
    assert (per_head <= over_all + 1e-12).all()


def test_features_are_ratios_to_the_device() -> None:
    """Half the SMs with half the heads fill alike."""
    whole, part = SPEC.task(shape_of(1024), H200), SPEC.task(shape_of(1024, batch=1), H200.with_sms(66))
    a, b = SPEC.features(SPEC.pool(whole)), SPEC.features(SPEC.pool(part))
    for name in ("log2_waves", "last_wave_use", "chip_use", "shared_share", "resident_blocks"):
        np.testing.assert_allclose(a[name], b[name])


def test_drawn_shapes_are_valid_affordable_and_varied() -> None:
    drawn = SPEC.sample_shapes(400, 1)
    for shape in drawn:
        SPEC.task(shape, H200)
        assert SPEC.flops(shape) <= 1.1e12
        assert SPEC.min_bytes(shape) <= 2**29
        assert 1 <= shape["batch"] <= 64
        assert 16 <= shape["seq"] <= 16384
    tiny = [SPEC.flops(shape) < 2.5e9 and SPEC.min_bytes(shape) < 2**24 for shape in drawn]
    assert np.mean(tiny) < 0.25
    assert {shape["head_dim"] for shape in drawn} == {64, 128}
    assert 0.1 < np.mean([shape["seq"] % 64 != 0 and shape["seq"] > 64 for shape in drawn]) < 0.4
    assert SPEC.sample_shapes(50, 1) == drawn[:50]
