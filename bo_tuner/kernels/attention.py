"""Causal attention forward for prefill: O = softmax(Q·Kᵀ / √head_dim, lower triangle)·V, BF16 in and out.

Q is ``[batch, heads, seq, head_dim]``, K and V are ``[batch, kv_heads, seq, head_dim]``; ``heads / kv_heads`` query heads
share a key head (grouped-query attention). Softmax and accumulation are FP32. Any sequence length is allowed; the head
size is 64 or 128.

A tile is ``block_m`` rows: the same queries of ``pack`` heads that share a key head. It walks over its keys ``block_n`` at a
time, and over those near the diagonal, where scores are masked, ``diagonal_n`` at a time. ``max_registers`` caps the
registers a thread, so that more blocks fit a multiprocessor (255: no cap).

``order`` and ``band`` say which tile of queries a block of threads takes. Under the causal mask the last tile of a head
sees the most keys, so starting with short tiles leaves the chip waiting for long ones: ``ascending`` walks from the
first tile to the last, ``longest_first`` the other way. So many heads (``band``) are walked together, the last tile of
each before the one before it of any; their keys have to share the L2 cache (4096: all heads).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.kernels.attention_tiles import NO_CAP, NUM_WARPS
from bo_tuner.kernels.language_models import HEADS
from bo_tuner.kernels.occupancy import blocks_per_sm, waves
from bo_tuner.kernels.spec import KernelSpec, Shape, ceil_div, next_power_of_two
from bo_tuner.space import Columns, Config, Pool, Rule, SearchSpace, categorical, integer, logarithmic, power_of_two
from bo_tuner.task import Task

_MAX_FLOPS = 1.1e12
_MAX_BYTES = 2**29
_TINY_FLOPS, _TINY_BYTES = 2.5e9, 2**24  # about 5 microseconds of an H200
_MAX_BLOCKS = 2**31  # of a grid's first dimension, and what fits the kernel's 32-bit integers

#: Stands for one band of all heads (of 4096 at a time, which no L2 tells from all).
_ALL = 4096


def _queries(columns: Columns) -> NDArray[Any]:
    """Queries a tile of each of its heads."""
    return columns["block_m"] // columns["pack"]


def _n_tiles(columns: Columns, task: Task) -> NDArray[Any]:
    """Tiles of queries a head."""
    return ceil_div(task.shape["seq"], _queries(columns))


def _n_packs(columns: Columns, task: Task) -> NDArray[Any]:
    return _n_heads(task) // columns["pack"]


def _n_heads(task: Task) -> int:
    return task.shape["batch"] * task.shape["heads"]


def _accumulators(columns: Columns, task: Task) -> tuple[NDArray[Any], NDArray[Any]]:
    """FP32 registers a thread holds of the output tile and of the score tile."""
    rows_per_thread = columns["block_m"] / (32 * NUM_WARPS)
    return rows_per_thread * task.shape["head_dim"], rows_per_thread * columns["block_n"]


def _warp_group(columns: Columns, task: Task) -> NDArray[np.bool_]:
    """Whether the compiler uses Hopper's warp-group MMA, which needs 64 rows."""
    return (columns["block_m"] >= 64) & (task.device.capability == (9, 0))


def _shared(columns: Columns, task: Task) -> NDArray[np.int64]:
    """Shared memory a block, equal to what Triton 3.6 and 3.7 allocate for sm_90, an upper estimate elsewhere.

    The warp-group MMA reads Q, K and V in place: the Q tile stays, and K and V have ``num_stages`` buffers each (one
    for both without a pipeline). The older MMA reads registers, so a buffer is free one stage earlier, the Q tile only
    passes through, and P crosses shared memory where warps share rows. So it does in front of a warp-group MMA where
    heads share a tile. Descriptor loads add two arrays of 8-byte barriers, each on a multiple of 16; placed before a
    buffer larger than Q they push it to the next multiple of 1 KiB, unless the steps near the diagonal are narrower.
    """
    head_dim, capability = task.shape["head_dim"], task.device.capability
    block_m, block_n, stages = (columns[name].astype(np.int64) for name in ("block_m", "block_n", "num_stages"))
    tma, grouped = columns["loader"] == "tma", _warp_group(columns, task)
    q_bytes, k_bytes, p_bytes = 2 * block_m * head_dim, 2 * block_n * head_dim, 2 * block_m * block_n
    unpiped = stages == 1
    loop = np.where(unpiped, k_bytes, 2 * stages * k_bytes)
    packed = tma & (columns["pack"] > 1)
    in_place = np.where(packed, np.maximum(q_bytes, loop), q_bytes + loop)
    passing = np.where(unpiped, k_bytes, 2 * (stages - 1) * k_bytes) + p_bytes
    if capability[0] == 10:
        return np.asarray(q_bytes + loop + p_bytes + 1024)
    barriers = 8 * np.where(grouped, stages, stages - 1)
    barriers = np.where(grouped & unpiped, 8, ceil_div(barriers, 16) * 16 + barriers)
    apart = grouped & ~packed & (unpiped | (columns["diagonal_n"] == block_n))
    pushed = np.where(apart & (stages * block_n > block_m), 1024, barriers)
    passing = passing + np.where(tma & (capability == (9, 0)), 0, q_bytes)  # there it passes through a K buffer
    return np.where(grouped, in_place, passing) + np.where(tma, pushed, 0)


def _registers(columns: Columns, task: Task) -> NDArray[np.float64]:
    """Registers a thread without a cap, fitted by eye to what the assembler reports for sm_90; within about 20 %."""
    output, score = _accumulators(columns, task)
    vectors = columns["block_n"] * task.shape["head_dim"] / (8 * 32 * NUM_WARPS)
    addresses = np.where(columns["loader"] == "pointer", 10 + 6 * np.ceil(vectors), 0)
    queries = np.where(columns["pack"] > 1, output / 2, 0)  # a packed tile of queries stays in registers
    grouped = output + 1.5 * score + 30 + addresses + queries
    return np.where(_warp_group(columns, task), grouped, 40 + 2.2 * (output + score))


def _has_order(columns: Columns, task: Task) -> NDArray[np.bool_]:
    return np.asarray(_n_tiles(columns, task) > 1)


_PARAMETERS = (
    power_of_two("block_m", 16, 128),
    power_of_two("block_n", 32, 128),
    power_of_two("diagonal_n", 32, 128),
    integer("num_stages", (1, 2, 3, 4)),
    categorical("loader", ("pointer", "tma")),
    power_of_two("pack", 1, 4),
    integer("max_registers", (96, 128, 168, NO_CAP)),
    categorical("order", ("ascending", "longest_first"), launch=True, active=_has_order, neutral="ascending"),
    logarithmic("band", (1, 2, 4, 8, 16, 32, _ALL), launch=True, active=_has_order, neutral=1),
)


def _too_thin(columns: Columns, task: Task) -> NDArray[np.bool_]:
    return (columns["block_m"] < 64) & (task.shape["seq"] > 128)


def _pointer_is_slow(columns: Columns, task: Task) -> NDArray[np.bool_]:
    slow = (task.shape["seq"] > 1024) | (columns["num_stages"] > 2)
    return (columns["loader"] == "pointer") & (task.device.capability >= (9, 0)) & slow


def _no_pack(columns: Columns, task: Task) -> NDArray[np.bool_]:
    packed, queries = columns["pack"] > 1, _queries(columns)
    group = task.shape["heads"] // task.shape["kv_heads"]
    empty = queries > max(16, next_power_of_two(task.shape["seq"]))
    odd = (group % columns["pack"] != 0) | (columns["block_m"] < 64) | (queries < 16) | empty
    far = columns["pack"].astype(np.int64) * task.shape["seq"] * task.shape["head_dim"] >= _MAX_BLOCKS  # 32-bit offsets
    return packed & (odd | far | (columns["max_registers"] < NO_CAP))


def _useless_cap(columns: Columns, task: Task) -> NDArray[np.bool_]:
    output, score = _accumulators(columns, task)
    cap = columns["max_registers"]
    spills = (output + score + 32 > cap) | (columns["loader"] == "pointer") | ~_warp_group(columns, task)
    return (cap < NO_CAP) & (spills | (_registers(columns, task) <= cap))


def _useless_diagonal(columns: Columns, task: Task) -> NDArray[np.bool_]:
    step, near = columns["block_n"], columns["diagonal_n"]
    far_off = (near > step) | ((2 * near < step) & (task.shape["seq"] <= 256))
    return far_off | ((near < step) & ((_n_tiles(columns, task) == 1) | (columns["block_m"] < 64)))


def _useless_stages(columns: Columns, task: Task) -> NDArray[np.bool_]:
    return (columns["num_stages"] > 2) & (columns["num_stages"] > ceil_div(task.shape["seq"], columns["block_n"]))


def _useless_band(columns: Columns, task: Task) -> NDArray[np.bool_]:
    band, n_packs, shape = columns["band"], _n_packs(columns, task), task.shape
    whole = band >= n_packs
    n_kv_heads = np.maximum(band * columns["pack"] * shape["kv_heads"] / shape["heads"], 1)
    small = 4 * n_kv_heads * shape["seq"] * shape["head_dim"] < task.device.l2_bytes / 64
    long_last = (columns["order"] == "ascending") & whole
    return (band > 1) & ((whole & (band < _ALL)) | (n_packs == 1) | long_last | (small & ~whole))


_RULES = (
    Rule(
        "tma needs a device of compute capability 9.0 or more",
        lambda c, t: (c["loader"] == "tma") & (t.device.capability < (9, 0)),
    ),
    Rule("pointer too slow: where tma is, up to 1024 tokens and 2 stages", _pointer_is_slow),
    # At 192 the assembler spills up to 264 bytes a thread, above it 500 to 4,700.
    Rule("over 192 accumulator registers a thread", lambda c, t: np.add(*_accumulators(c, t)) > 192),
    Rule("block_m too thin: under 64 though there are over 128 tokens", _too_thin),
    Rule(
        "block_m over 64 and over the next power of two of seq",
        lambda c, t: (c["pack"] == 1) & (c["block_m"] > max(64, next_power_of_two(t.shape["seq"]))),
    ),
    Rule(
        "pack: a divisor of heads / kv_heads, 64 rows, 16 queries and not twice those there are, no cap on registers",
        _no_pack,
    ),
    Rule("max_registers: no less than the kernel needs, or so few that it spills", _useless_cap),
    Rule(
        "diagonal_n: block_n or, with 64 rows and several tiles, half of it; less from 257 tokens on", _useless_diagonal
    ),
    Rule("more stages than steps of keys", _useless_stages),
    Rule(
        "shared memory over the device's limit a block",
        lambda c, t: _shared(c, t) > t.device.shared_per_block_bytes,
    ),
    Rule(
        "band: as good as 1 (its keys fill under 1/64 of L2) or all (of another name, or longest tiles last)",
        _useless_band,
    ),
)


def _work(columns: Columns, task: Task) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Keys that the longest tile of a head computes with, that all its tiles do, and steps of all its tiles."""
    seq = task.shape["seq"]
    kinds = np.column_stack([_queries(columns), columns["block_n"], columns["diagonal_n"]])
    kinds, rows = np.unique(kinds, axis=0, return_inverse=True)
    found = np.empty((len(kinds), 3))
    for row, (queries, block_n, diagonal_n) in enumerate(kinds.tolist()):
        start = np.arange(0, seq, queries, dtype=np.int64)
        far = start // block_n
        near = ceil_div(np.minimum(start + queries, seq) - far * block_n, diagonal_n)
        keys = far * block_n + near * diagonal_n
        found[row] = keys[-1], keys.sum(), (far + near).sum()
    longest, total, n_steps = found[rows.reshape(-1)].T
    return longest, total, n_steps


class AttentionSpec(KernelSpec):
    """Causal attention forward in BF16 with grouped key heads."""

    name = "attention"
    shape_keys = ("batch", "heads", "kv_heads", "seq", "head_dim")
    program_module = "bo_tuner.kernels.triton.attention"
    layout_modules = ("bo_tuner.kernels.attention_tiles",)
    compiled_dimensions = ("head_dim",)
    space = SearchSpace(_PARAMETERS, _RULES)

    def check_shape(self, shape: Shape) -> None:
        if shape["head_dim"] not in (64, 128):
            raise UserError(f"head_dim: {shape['head_dim']} is not 64 or 128")
        if shape["heads"] % shape["kv_heads"]:
            raise UserError(f"kv_heads: {shape['kv_heads']} does not divide heads, which is {shape['heads']}")
        if shape["seq"] * shape["head_dim"] >= _MAX_BLOCKS:
            raise UserError(f"seq: {shape['seq']} x head_dim {shape['head_dim']} is a head of 2^31 elements or more")
        smallest = min(block_m for block_m in _PARAMETERS[0].values if isinstance(block_m, int))
        if shape["batch"] * shape["heads"] * ceil_div(shape["seq"], smallest) >= _MAX_BLOCKS:
            raise UserError(f"batch: {shape['batch']} x heads {shape['heads']} makes a grid of 2^31 blocks or more")

    def warps(self, columns: Columns) -> NDArray[np.int64]:
        return np.full(len(columns["block_m"]), NUM_WARPS, dtype=np.int64)

    def flops(self, shape: Shape) -> float:
        """Two products over the lower triangle, its diagonal included."""
        pairs = shape["seq"] * (shape["seq"] + 1) / 2
        return 4.0 * shape["batch"] * shape["heads"] * shape["head_dim"] * pairs

    def min_bytes(self, shape: Shape) -> float:
        heads = 2.0 * (shape["heads"] + shape["kv_heads"])
        return 2.0 * shape["batch"] * heads * shape["seq"] * shape["head_dim"]

    def shared_bytes(self, columns: Columns, task: Task) -> NDArray[np.int64]:
        return _shared(columns, task)

    def default_config(self, task: Task) -> Config:
        """FlashAttention-2's tile, 128 queries by 64 keys, cut down to what is valid here."""
        pool = self.pool(task)
        wished = {"block_m": 128, "block_n": 64, "diagonal_n": 64, "pack": 1, "max_registers": NO_CAP, "band": 1}
        distance = sum(np.abs(np.log2(pool.columns[name] / value)) for name, value in wished.items())
        distance = distance + np.abs(pool.columns["num_stages"] - 3) + (pool.columns["loader"] != "tma") * 4
        return pool.config(int(np.argmin(distance + (pool.columns["order"] != "longest_first") * 0.5)))

    def draw_shape(self, rng: np.random.Generator) -> dict[str, int]:
        """The heads of a public language model, cut for 1 to 8 GPUs, times a batch of prompts.

        Length: log-uniform from 16 to 16384; half the draws are rounded to a power of two, a quarter down to a multiple of
        64 (of 128 in half of these), a quarter stay any number. Batch: log-uniform from 1 to 64, three quarters rounded to
        a power of two. Then the batch, after it the length, is halved until the task has at most 1.1e12 flop and 512 MB
        of tensors, so that timing every config stays affordable. Half the tasks of a few microseconds are drawn again.
        """
        while True:
            heads, kv_heads, head_dim = HEADS[rng.integers(len(HEADS))]
            length = float(np.exp(rng.uniform(np.log(16), np.log(16385))))
            kind, step = rng.choice(3, p=(0.5, 0.25, 0.25)), (64, 128)[rng.integers(2)]
            seq = int((2.0 ** np.round(np.log2(length)), max(step, length // step * step), length)[kind])
            prompts = float(np.exp(rng.uniform(0, np.log(65))))
            batch = int(2.0 ** np.round(np.log2(prompts)) if rng.random() < 0.75 else prompts)
            shape = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}
            while self.flops(shape) > _MAX_FLOPS or self.min_bytes(shape) > _MAX_BYTES:
                shape["batch" if shape["batch"] > 1 else "seq"] //= 2
            tiny = self.flops(shape) < _TINY_FLOPS and self.min_bytes(shape) < _TINY_BYTES
            if not (tiny and rng.random() < 0.5):
                return shape

    def features(self, pool: Pool) -> dict[str, NDArray[np.float64]]:
        """Waves, imbalance, padding, reuse and pressure of every config; sizes in log2, all else as ratios."""
        task, columns, shape = pool.task, pool.columns, pool.task.shape
        device, seq, head_dim = task.device, shape["seq"], shape["head_dim"]
        block_m, block_n, near, stages, pack, cap = (
            columns[name].astype(np.float64)
            for name in ("block_m", "block_n", "diagonal_n", "num_stages", "pack", "max_registers")
        )
        group = shape["heads"] / shape["kv_heads"]
        n_packs, n_tiles = _n_packs(columns, task).astype(np.float64), _n_tiles(columns, task).astype(np.float64)
        output, score = _accumulators(columns, task)
        wanted, shared = _registers(columns, task), _shared(columns, task).astype(np.float64)
        registers = np.minimum(wanted, cap)
        resident = blocks_per_sm(device, shared, self.warps(columns), registers)
        blocks = n_tiles * n_packs
        full, last_wave = waves(blocks, device, resident)
        by_sm, last_row = waves(blocks, device, np.ones_like(blocks))

        # Time in steps of block_n keys. A tile costs about two besides, to load Q, fill the pipeline and store.
        longest_keys, head_keys, head_steps = _work(columns, task)
        mean = head_keys / block_n / n_tiles
        longest_cost, head_cost = longest_keys / block_n + 2, head_keys / block_n + 2 * n_tiles
        slots = device.n_sms * resident
        even = n_packs * head_cost / slots
        # The last of the longest tiles starts when all but this much work has been handed out: its band's shorter tiles.
        band = np.minimum(columns["band"], n_packs)
        last_band = (n_packs - 1) % band + 1
        left = np.where(
            columns["order"] == "longest_first", last_band * head_cost - (last_band - 1) * longest_cost, longest_cost
        )
        makespan = np.maximum(even, np.maximum(even - left / slots, 0) + longest_cost)
        useful = seq * (seq + 1) / 2 / (head_keys * _queries(columns))

        tile_bytes = 2 * head_dim * (2 * block_m + 2 * mean * block_n)
        tile_intensity = 4 * head_dim * mean * block_m * block_n / tile_bytes
        kv_head_bytes = 4.0 * seq * head_dim
        packs_at_once = np.minimum(np.maximum(band, slots / n_tiles), n_packs)
        kv_at_once = kv_head_bytes * np.maximum(packs_at_once * pack / group, 1)
        flops = self.flops(shape)

        def constant(value: float) -> NDArray[np.float64]:
            return np.full(len(pool), float(value))

        return {
            "log2_seq": constant(np.log2(seq)),
            "log2_heads": constant(np.log2(_n_heads(task))),
            "log2_group": constant(np.log2(group)),
            "log2_head_dim": constant(np.log2(head_dim)),
            "log2_problem_intensity": constant(np.log2(flops / self.min_bytes(shape) / device.ridge)),
            "log2_flops_per_sm": constant(np.log2(flops / device.n_sms)),
            "log2_heads_per_sm": constant(np.log2(_n_heads(task) / device.n_sms)),
            "log2_kv_over_l2": constant(np.log2(kv_head_bytes * shape["batch"] * shape["kv_heads"] / device.l2_bytes)),
            "log2_kv_at_once_over_l2": np.log2(kv_at_once / device.l2_bytes),
            "log2_tiles": np.log2(n_tiles),
            "log2_blocks_per_sm_of_chip": np.log2(by_sm),
            "log2_waves": np.log2(full),
            "last_wave_use": last_wave,
            "last_row_use": last_row,
            "chip_use": np.minimum(by_sm, 1.0),
            "imbalance": longest_keys / block_n / mean,
            "makespan_use": even / makespan,
            "log2_makespan": np.log2(makespan * block_m * block_n * resident / (seq * seq)),
            "longest_over_even": np.log2(longest_cost / even),
            "padding_m": seq / (n_tiles * _queries(columns)),
            "useful_share": useful,
            "useful_makespan": useful * even / makespan,
            "log2_key_steps": np.log2(head_steps / n_tiles),
            "log2_longest_keys": np.log2(longest_keys),
            "near_over_far": np.log2(near / block_n),
            "log2_queries": np.log2(_queries(columns)),
            "key_steps_over_stages": np.log2(mean / stages),
            "shared_share": shared / device.shared_per_block_bytes,
            "resident_blocks": resident,
            "registers_share": registers / 255,
            "spilled_share": np.maximum(wanted - cap, 0) / 255,
            "accumulators_share": (output + score) / 255,
            "output_share": output / 255,
            "score_share": score / 255,
            "log2_bytes_in_flight": np.log2(np.maximum(stages - 1, 0.5) * 4 * block_n * head_dim * resident),
            "log2_tile_intensity": np.log2(tile_intensity / device.ridge),
            "warp_group": _warp_group(columns, task).astype(np.float64),
            "log2_aspect": np.log2(block_m / block_n),
            "log2_tile": np.log2(block_m * block_n),
        }
