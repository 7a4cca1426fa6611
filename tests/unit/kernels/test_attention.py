"""Causal attention without a GPU: its space, costs, features and distribution of shapes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_tuner.errors import UserError
from bo_tuner.kernels import load_kernel
from bo_tuner.kernels.attention import AttentionSpec
from bo_tuner.space import Config, Pool, config_key
from bo_tuner.task import Device, device_named, known_devices
from tests.unit.kernels.visiting import attention_order

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


def pool_of(shape: dict[str, int], device: Device = H200) -> Pool:
    return SPEC.space.pool(SPEC.task(shape, device))


def compiled(config: Config) -> tuple[object, ...]:
    return tuple(value for name, value in config.items() if name not in LAUNCH)


def counts(pool: Pool, row: int) -> tuple[int, int]:
    """Packs of heads, and tiles of queries that each has."""
    shape, config = pool.task.shape, pool.config(row)
    block_m, pack = int(config["block_m"]), int(config["pack"])
    return shape["batch"] * shape["heads"] // pack, -(-shape["seq"] // (block_m // pack))


def test_is_found_by_name() -> None:
    assert load_kernel("attention").name == "attention"


@given(shapes(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_the_pool_has_just_what_no_rule_refuses(shape: dict[str, int], random: Random) -> None:
    pool = pool_of(shape)
    known = set(pool.keys)
    assert len(known) == len(pool) > 0
    assert pool.index(SPEC.default_config(pool.task)) >= 0
    for _ in range(20):
        config, parameter = pool.config(random.randrange(len(pool))), random.choice(pool.parameters)
        assert SPEC.space.why_invalid(config, pool.task) is None
        config[parameter.name] = random.choice(parameter.values)
        assert (SPEC.space.why_invalid(config, pool.task) is None) == (config_key(config) in known), config


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("batch", "heads", "kv_heads"), [(4, 32, 8), (8, 32, 32), (1, 64, 8), (2, 128, 8)])
@pytest.mark.parametrize("seq", [512, 777, 1024, 1025, 4096, 8192])
def test_the_space_is_large_enough(batch: int, heads: int, kv_heads: int, seq: int, head_dim: int) -> None:
    assert len(pool_of(shape_of(seq, head_dim, batch, heads, kv_heads))) >= 600


@pytest.mark.parametrize("seq", [17, 300, 1025])
def test_different_compile_keys_are_different_code(seq: int) -> None:
    pool = pool_of(shape_of(seq, heads=12, kv_heads=3))
    distinct = {compiled(config): config for config in pool}
    assert len({SPEC.program.build(config, pool.task).key for config in distinct.values()}) == len(distinct)


@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "seq", "n_orders"),
    [(3, 12, 3, 300, 13), (1, 4, 1, 513, 5), (5, 7, 7, 130, 13), (1, 1, 1, 600, 2)],
)
def test_no_two_configs_visit_tiles_in_the_same_order_with_the_same_code(
    batch: int, heads: int, kv_heads: int, seq: int, n_orders: int
) -> None:
    small_cache = replace(H200, name="small cache", l2_bytes=2**18)
    pool = pool_of(shape_of(seq, 128, batch, heads, kv_heads), small_cache)
    seen = defaultdict(list)
    for row in range(len(pool)):
        n_packs, n_tiles = counts(pool, row)
        order, band = str(pool.columns["order"][row]), int(pool.columns["band"][row])
        visits = tuple(attention_order(n_packs, n_tiles, order, band))
        assert sorted(visits) == [(pack, tile) for pack in range(n_packs) for tile in range(n_tiles)]
        seen[compiled(pool.config(row))].append(visits)
    assert all(len(set(orders)) == len(orders) for orders in seen.values())
    assert max(map(len, seen.values())) == n_orders


def test_order_and_band_exist_only_where_there_are_several_tiles() -> None:
    assert not LAUNCH & {name for config in pool_of(shape_of(1)) for name in config}
    pool = pool_of(shape_of(100))
    for row, config in enumerate(pool):
        assert ("order" in config) == ("band" in config) == (counts(pool, row)[1] > 1)


def test_one_head_has_one_band() -> None:
    alone = pool_of(shape_of(4096, batch=1, heads=1, kv_heads=1))
    assert {(config["order"], config["band"]) for config in alone} == {("ascending", 1), ("longest_first", 1)}


def test_a_band_of_all_heads_has_one_name_and_starts_with_the_longest_tiles() -> None:
    columns = pool_of(shape_of(4096, batch=3)).columns
    n_packs = 24 // columns["pack"]
    assert set(columns["band"][columns["band"] >= n_packs]) == {4096}
    assert set(columns["order"][columns["band"] >= n_packs]) == {"longest_first"}


def test_heads_share_a_tile_only_where_they_share_keys() -> None:
    for heads, kv_heads, packs in ((8, 8, {1}), (12, 4, {1}), (12, 2, {1, 2}), (32, 8, {1, 2, 4})):
        columns = pool_of(shape_of(512, heads=heads, kv_heads=kv_heads)).columns
        assert set(columns["pack"]) == packs
        assert (columns["block_m"] // columns["pack"] >= 16).all()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"block_m": 32}, "block_m too thin"),
        ({"block_n": 128, "diagonal_n": 128}, "over 192 accumulator registers"),
        ({"block_m": 64, "block_n": 128, "diagonal_n": 128, "num_stages": 4}, "shared memory over"),
        ({"loader": "pointer"}, "pointer too slow"),
        ({"pack": 4}, "pack: a divisor of heads / kv_heads"),
        ({"block_m": 64, "pack": 2, "max_registers": 128}, "pack: "),
        ({"max_registers": 168}, "max_registers: "),
        ({"block_n": 32}, "diagonal_n: "),
        ({"order": "ascending", "band": 4096}, "band: "),
        ({"band": 16}, "band: "),
        ({"block_n": 16}, "block_n: 16 is not one of"),
    ],
)
def test_reasons(change: dict[str, int | str], reason: str) -> None:
    task = SPEC.task(shape_of(4096), H200)
    config = SPEC.default_config(task)
    assert (config["block_m"], config["block_n"]) == (128, 64)
    assert (SPEC.space.why_invalid({**config, **change}, task) or "").startswith(reason)


def test_every_rule_rejects_something() -> None:
    shapes = [(1, 1, 1, 1, 64), (4, 32, 8, 100, 128), (4, 32, 8, 512, 64), (4, 32, 8, 4096, 128)]
    tasks = [
        SPEC.task(dict(zip(SPEC.shape_keys, shape, strict=True)), device)
        for shape in shapes
        for device in known_devices().values()
    ]
    for rule in SPEC.space.rules:
        assert any(SPEC.pool(task).rejected[rule.reason] for task in tasks), rule.reason


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
@settings(deadline=None, max_examples=40)
def test_features_are_finite_and_shares_are_shares(shape: dict[str, int], device: str) -> None:
    pool = pool_of(shape, device_named(device))
    features = SPEC.features(pool)
    for name, values in features.items():
        assert values.shape == (len(pool),), name
        assert np.isfinite(values).all(), name
    for name in ("useful_share", "makespan_use", "useful_makespan", "last_wave_use", "padding_m", "shared_share"):
        assert (features[name] > 0).all(), name
        assert (features[name] <= 1 + 1e-9).all(), name
    assert (features["registers_share"] <= 1).all()
    assert (features["spilled_share"] >= 0).all()
    assert (features["imbalance"] >= 1 - 1e-9).all()


@pytest.mark.parametrize("device", sorted(known_devices()))
@pytest.mark.parametrize("seq", [1, 67, 300, 4096])
def test_features_do_not_depend_on_the_order_of_rows(seq: int, device: str) -> None:
    pool = pool_of(shape_of(seq, heads=12, kv_heads=3), device_named(device))
    order = np.random.default_rng(5).permutation(len(pool))
    columns, active = ({name: column[order] for name, column in of.items()} for of in (pool.columns, pool.active))
    shuffled = SPEC.features(replace(pool, columns=columns, active=active))
    for name, values in SPEC.features(pool).items():
        np.testing.assert_array_equal(values[order], shuffled[name], err_msg=name)


@pytest.mark.parametrize("seq", [200, 1000])
def test_work_matches_a_count_by_hand(seq: int) -> None:
    pool = pool_of(shape_of(seq, heads=16, kv_heads=4))
    features = SPEC.features(pool)
    for row in range(0, len(pool), 31):
        config = pool.config(row)
        queries, block_n, near = int(config["block_m"]) // int(config["pack"]), config["block_n"], config["diagonal_n"]
        keys, n_steps = [], 0
        for first in range(0, seq, queries):
            key = 0
            while key < min(first + queries, seq):  # whole steps up to the first query, narrow ones from there on
                key += int(block_n if key + int(block_n) <= first else near)
                n_steps += 1
            keys.append(key)
        assert features["imbalance"][row] == pytest.approx(max(keys) / np.mean(keys))
        assert features["useful_share"][row] == pytest.approx(seq * (seq + 1) / 2 / (sum(keys) * queries))
        assert features["log2_longest_keys"][row] == pytest.approx(np.log2(max(keys)))
        assert features["log2_key_steps"][row] == pytest.approx(np.log2(n_steps / len(keys)))


def test_longest_first_is_expected_to_end_no_later() -> None:
    pool = pool_of(shape_of(4096, batch=8))
    use = dict(zip(pool.keys, SPEC.features(pool)["makespan_use"], strict=True))
    bands = {"ascending": [1, 8], "longest_first": [1, 8, 16, 4096]}
    for config in {compiled(config): config for config in pool}.values():
        orders = [(order, band) for order in bands for band in bands[order]]
        expected = [use.get(config_key({**config, "order": order, "band": band})) for order, band in orders]
        known = [value for value in expected if value is not None]
        assert len(known) >= 3
        assert all(earlier <= later + 1e-12 for earlier, later in pairwise(known))


def test_features_are_ratios_to_the_device() -> None:
    """Half the SMs with half the heads fill alike."""
    features = []
    for pool in (pool_of(shape_of(1024)), pool_of(shape_of(1024, batch=1), H200.with_sms(66))):
        first_band = pool.columns["band"] == 1
        features.append({name: values[first_band] for name, values in SPEC.features(pool).items()})
    for name in ("log2_waves", "last_wave_use", "chip_use", "shared_share", "resident_blocks"):
        np.testing.assert_allclose(features[0][name], features[1][name], err_msg=name)


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
