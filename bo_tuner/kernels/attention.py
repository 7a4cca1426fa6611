"""Causal attention forward for prefill: O = softmax(Q·Kᵀ / √head_dim, lower triangle)·V, BF16 in and out.

Q is ``[batch, heads, seq, head_dim]``, K and V are ``[batch, kv_heads, seq, head_dim]``; ``heads / kv_heads`` query heads
share a key head (grouped-query attention). Softmax and accumulation are FP32. Any sequence length is allowed; the head
size is 64 or 128.

``order`` says which tile of queries a block of threads takes. Under the causal mask the last tile of a head sees the
most keys, so starting with short tiles leaves the chip waiting for long ones: ``ascending`` walks a head from its first
tile, ``longest_first`` from its last, ``longest_first_all`` takes the last tile of every head before any earlier one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.kernels.occupancy import blocks_per_sm, waves
from bo_tuner.kernels.spec import KernelSpec, Shape, ceil_div, next_power_of_two
from bo_tuner.space import Columns, Config, Pool, Rule, SearchSpace, categorical, integer, power_of_two
from bo_tuner.task import Task

_MAX_FLOPS = 1.1e12
_MAX_BYTES = 2**29
_TINY_FLOPS, _TINY_BYTES = 2.5e9, 2**24  # about 5 microseconds of an H200
_MAX_BLOCKS = 2**31  # of a grid's first dimension, and what fits the kernel's 32-bit integers

# Public model cards: query heads, key heads, head size.
_MODELS = (
    (32, 32, 128),  # Llama 2 7B
    (40, 40, 128),  # Llama 2 13B, Qwen 1.5 14B
    (64, 8, 128),  # Llama 2 and 3 70B, Qwen 2.5 72B
    (32, 8, 128),  # Llama 3 8B, Mistral 7B, Mixtral 8x7B, Qwen 3 8B
    (128, 8, 128),  # Llama 3.1 405B
    (24, 8, 128),  # Llama 3.2 3B
    (32, 8, 64),  # Llama 3.2 1B
    (96, 8, 128),  # Mistral Large
    (14, 2, 64),  # Qwen 2.5 0.5B
    (12, 2, 128),  # Qwen 2.5 1.5B
    (16, 2, 128),  # Qwen 2.5 3B
    (28, 4, 128),  # Qwen 2.5 7B
    (40, 8, 128),  # Qwen 2.5 14B and 32B, Qwen 3 14B
    (16, 8, 128),  # Qwen 3 0.6B and 1.7B
    (32, 4, 128),  # Qwen 3 30B-A3B, Yi 6B
    (64, 4, 128),  # Qwen 3 235B-A22B
    (32, 16, 128),  # Gemma 2 27B, Gemma 3 27B
    (64, 8, 64),  # GPT-OSS 20B and 120B
    (40, 10, 128),  # Phi 3 medium, Phi 4
    (24, 8, 128),  # Phi 4 mini
    (32, 32, 64),  # Phi 1.5, OPT 1.3B, SmolLM 2 1.7B
    (9, 3, 64),  # SmolLM 135M
    (15, 5, 64),  # SmolLM 360M
    (16, 4, 128),  # SmolLM 3
    (71, 1, 64),  # Falcon 7B
    (128, 8, 64),  # Falcon 40B
    (48, 1, 128),  # StarCoder
    (12, 12, 64),  # GPT-2
    (25, 25, 64),  # GPT-2 XL
)


def _parallel_cuts() -> tuple[tuple[int, int, int], ...]:
    """(heads, key heads, head size) of one GPU of 1, 2, 4 or 8: heads are cut, key heads repeated where too few."""
    cuts: dict[tuple[int, int, int], None] = {}
    for heads, kv_heads, head_dim in _MODELS:
        for gpus in (1, 2, 4, 8):
            kv_heads_here = max(1, kv_heads // gpus)
            if heads % gpus == 0 and (kv_heads % gpus == 0 or gpus % kv_heads == 0):
                cuts[heads // gpus, kv_heads_here, head_dim] = None
    return tuple(cuts)


_CUTS = _parallel_cuts()


def _n_tiles(columns: Columns, task: Task) -> NDArray[Any]:
    """Tiles of queries a head."""
    return ceil_div(task.shape["seq"], columns["block_m"])


def _n_heads(task: Task) -> int:
    return task.shape["batch"] * task.shape["heads"]


def _accumulators(columns: Columns, task: Task) -> tuple[NDArray[Any], NDArray[Any]]:
    """FP32 registers a thread holds of the output tile and of the score tile."""
    rows_per_thread = columns["block_m"] / (32 * columns["num_warps"])
    return rows_per_thread * task.shape["head_dim"], rows_per_thread * columns["block_n"]


def _warp_group(columns: Columns, task: Task) -> NDArray[np.bool_]:
    """Whether the compiler uses Hopper's warp-group MMA, which needs 64 rows."""
    return (columns["block_m"] >= 64) & (task.device.capability == (9, 0))


def _shared(columns: Columns, task: Task) -> NDArray[np.int64]:
    """Shared memory a block, equal to what Triton 3.6 and 3.7 allocate for sm_90, an upper estimate elsewhere.

    The warp-group MMA reads Q, K and V in place: the Q tile stays, and K and V have ``num_stages`` buffers each (one
    for both without a pipeline). The older MMA reads registers, so a buffer is free one stage earlier, the Q tile only
    passes through, and P crosses shared memory where warps share rows. Descriptor loads add two arrays of 8-byte
    barriers, each on a multiple of 16; placed before a buffer larger than Q they push it to the next multiple of 1 KiB.
    """
    head_dim, capability = task.shape["head_dim"], task.device.capability
    block_m, block_n, stages = (columns[name].astype(np.int64) for name in ("block_m", "block_n", "num_stages"))
    tma, grouped = columns["loader"] == "tma", _warp_group(columns, task)
    q_bytes, k_bytes, p_bytes = 2 * block_m * head_dim, 2 * block_n * head_dim, 2 * block_m * block_n
    unpiped = stages == 1
    in_place = q_bytes + np.where(unpiped, k_bytes, 2 * stages * k_bytes)
    passing = np.where(unpiped, k_bytes, 2 * (stages - 1) * k_bytes) + p_bytes
    if capability[0] == 10:
        return np.asarray(in_place + p_bytes + 1024)
    barriers = 8 * np.where(grouped, stages, stages - 1)
    barriers = np.where(grouped & unpiped, 8, ceil_div(barriers, 16) * 16 + barriers)
    pushed = np.where(grouped & (stages * block_n > block_m), 1024, barriers)
    passing = passing + np.where(tma & (capability == (9, 0)), 0, q_bytes)  # there it passes through a K buffer
    return np.where(grouped, in_place, passing) + np.where(tma, pushed, 0)


def _registers(columns: Columns, task: Task) -> NDArray[np.float64]:
    """Registers a thread, fitted by eye to what the assembler reports for sm_90; within about 20 %."""
    output, score = _accumulators(columns, task)
    vectors = columns["block_n"] * task.shape["head_dim"] / (8 * 32 * columns["num_warps"])
    addresses = np.where(columns["loader"] == "pointer", 10 + 6 * np.ceil(vectors), 0)
    grouped = output + 1.5 * score + 30 + addresses
    return np.where(_warp_group(columns, task), grouped, 40 + 2.2 * (output + score))


_PARAMETERS = (
    power_of_two("block_m", 16, 256),
    power_of_two("block_n", 32, 128),
    integer("num_stages", (1, 2, 3, 4)),
    power_of_two("num_warps", 4, 8),
    categorical("loader", ("pointer", "tma")),
    categorical(
        "order",
        ("ascending", "longest_first", "longest_first_all"),
        launch=True,
        active=lambda c, t: _n_tiles(c, t) > 1,
        neutral="ascending",
    ),
)

_RULES = (
    Rule(
        "tma needs a device of compute capability 9.0 or more",
        lambda c, t: (c["loader"] == "tma") & (t.device.capability < (9, 0)),
    ),
    Rule(
        "8 warps need block_m of 128 or more: 16 rows a warp",
        lambda c, _: (c["num_warps"] == 8) & (c["block_m"] < 128),
    ),
    Rule("over 32 rows a warp: the registers spill", lambda c, _: c["block_m"] > 32 * c["num_warps"]),
    # At 192 the assembler spills up to 264 bytes a thread, above it 500 to 4,700.
    Rule("over 192 accumulator registers a thread", lambda c, t: np.add(*_accumulators(c, t)) > 192),
    Rule(
        "block_m over 64 and over the next power of two of seq",
        lambda c, t: c["block_m"] > max(64, next_power_of_two(t.shape["seq"])),
    ),
    Rule(
        "shared memory over the device's limit a block",
        lambda c, t: _shared(c, t) > t.device.shared_per_block_bytes,
    ),
    Rule(
        "one head: longest_first_all is longest_first",
        lambda c, t: (c["order"] == "longest_first_all") & (_n_heads(t) == 1),
    ),
)


def _steps(columns: Columns, task: Task) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Key steps of the longest tile and of all tiles of a head."""
    seq = task.shape["seq"]
    pairs, rows = np.unique(np.column_stack([columns["block_m"], columns["block_n"]]), axis=0, return_inverse=True)
    longest, total = np.empty(len(pairs)), np.empty(len(pairs))
    for row, (block_m, block_n) in enumerate(pairs.tolist()):
        end = np.minimum(np.arange(block_m, seq + block_m, block_m, dtype=np.int64), seq)
        steps = ceil_div(end, block_n)
        longest[row], total[row] = steps[-1], steps.sum()
    return longest[rows.reshape(-1)], total[rows.reshape(-1)]


class AttentionSpec(KernelSpec):
    """Causal attention forward in BF16 with grouped key heads."""

    name = "attention"
    shape_keys = ("batch", "heads", "kv_heads", "seq", "head_dim")
    program_module = "bo_tuner.kernels.triton.attention"
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
        wished = {"block_m": 128, "block_n": 64, "num_warps": 4 if task.shape["head_dim"] == 64 else 8}
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
            heads, kv_heads, head_dim = _CUTS[rng.integers(len(_CUTS))]
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
        device, n_heads, seq, head_dim = task.device, _n_heads(task), shape["seq"], shape["head_dim"]
        block_m, block_n, stages, warps = (
            columns[name].astype(np.float64) for name in ("block_m", "block_n", "num_stages", "num_warps")
        )
        n_tiles = _n_tiles(columns, task).astype(np.float64)
        output, score = _accumulators(columns, task)
        registers, shared = _registers(columns, task), _shared(columns, task).astype(np.float64)
        resident = blocks_per_sm(device, shared, columns["num_warps"], registers)
        blocks = n_tiles * n_heads
        full, last_wave = waves(blocks, device, resident)
        by_sm, last_row = waves(blocks, device, np.ones_like(blocks))

        # Time in key steps. A tile costs about two steps besides, to load Q, fill the pipeline and store.
        longest, head_steps = _steps(columns, task)
        mean = head_steps / n_tiles
        longest_cost, head_cost = longest + 2, head_steps + 2 * n_tiles
        slots = device.n_sms * resident
        even = n_heads * head_cost / slots
        # The last of the longest tiles starts when all but this much work has been handed out.
        order = columns["order"]
        left = np.where(order == "longest_first", head_cost, n_heads * head_cost - (n_heads - 1) * longest_cost)
        left = np.where(order == "ascending", longest_cost, left)
        makespan = np.maximum(even, np.maximum(even - left / slots, 0) + longest_cost)
        computed = head_steps * block_m * block_n
        useful = seq * (seq + 1) / 2 / computed

        tile_bytes = 2 * head_dim * (2 * block_m + 2 * mean * block_n)
        tile_intensity = 4 * head_dim * mean * block_m * block_n / tile_bytes
        kv_bytes = 4.0 * shape["batch"] * shape["kv_heads"] * seq * head_dim
        flops = self.flops(shape)

        def constant(value: float) -> NDArray[np.float64]:
            return np.full(len(pool), float(value))

        return {
            "log2_seq": constant(np.log2(seq)),
            "log2_heads": constant(np.log2(n_heads)),
            "log2_group": constant(np.log2(shape["heads"] / shape["kv_heads"])),
            "log2_head_dim": constant(np.log2(head_dim)),
            "log2_problem_intensity": constant(np.log2(flops / self.min_bytes(shape) / device.ridge)),
            "log2_flops_per_sm": constant(np.log2(flops / device.n_sms)),
            "log2_heads_per_sm": constant(np.log2(n_heads / device.n_sms)),
            "log2_kv_over_l2": constant(np.log2(kv_bytes / device.l2_bytes)),
            "log2_tiles": np.log2(n_tiles),
            "log2_blocks_per_sm_of_chip": np.log2(by_sm),
            "log2_waves": np.log2(full),
            "last_wave_use": last_wave,
            "last_row_use": last_row,
            "chip_use": np.minimum(by_sm, 1.0),
            "imbalance": longest / mean,
            "makespan_use": even / makespan,
            "log2_makespan": np.log2(makespan * block_m * block_n * resident / (seq * seq)),
            "longest_over_even": np.log2(longest_cost / even),
            "padding_m": seq / (n_tiles * block_m),
            "useful_share": useful,
            "useful_makespan": useful * even / makespan,
            "log2_key_steps": np.log2(mean),
            "log2_longest_steps": np.log2(longest),
            "masked_steps_share": n_tiles * np.ceil(np.minimum(block_m, seq) / block_n) / head_steps,
            "key_steps_over_stages": np.log2(mean / stages),
            "shared_share": shared / device.shared_per_block_bytes,
            "resident_blocks": resident,
            "resident_warps": resident * warps,
            "registers_share": registers / 255,
            "accumulators_share": (output + score) / 255,
            "output_share": output / 255,
            "score_share": score / 255,
            "rows_per_warp": block_m / warps / 16,
            "log2_bytes_in_flight": np.log2(np.maximum(stages - 1, 0.5) * 4 * block_n * head_dim * resident),
            "log2_tile_intensity": np.log2(tile_intensity / device.ridge),
            "warp_group": _warp_group(columns, task).astype(np.float64),
            "log2_aspect": np.log2(block_m / block_n),
            "log2_tile": np.log2(block_m * block_n),
            "log2_tile_per_warp": np.log2(block_m * block_n / warps),
        }
