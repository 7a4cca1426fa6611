"""GEMM: C[M, N] = A[M, K] · B[N, K]ᵀ in BF16 with FP32 accumulation; B is a weight as ``nn.Linear`` stores it.

Any M is allowed; N and K must be multiples of 32, so that every row starts on a 64-byte line and the copy engine and
vector loads apply. Where a block depth does not divide K, the copy engine fills with zeros; pointer loads would need a
mask in the inner loop, so such a config is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.kernels.occupancy import blocks_per_sm, waves
from bo_tuner.kernels.spec import KernelSpec, Shape, ceil_div, next_power_of_two
from bo_tuner.space import Columns, Config, Parameter, Pool, Predicate, Rule, SearchSpace, categorical, power_of_two
from bo_tuner.space import integer as integer_parameter
from bo_tuner.task import Task

_MAX_FLOPS = 5.5e11

# Public model cards: hidden size, width of the MLP, query heads, key heads, head size, vocabulary (0: not used here).
_MODELS = (
    (4096, 11008, 32, 32, 128, 32000),  # Llama 2 7B
    (5120, 13824, 40, 40, 128, 32000),  # Llama 2 13B
    (8192, 28672, 64, 8, 128, 128256),  # Llama 3 70B
    (4096, 14336, 32, 8, 128, 128256),  # Llama 3 8B, Mistral 7B
    (2048, 8192, 32, 8, 64, 128256),  # Llama 3.2 1B
    (3072, 8192, 24, 8, 128, 128256),  # Llama 3.2 3B
    (16384, 53248, 128, 8, 128, 0),  # Llama 3.1 405B
    (896, 4864, 14, 2, 64, 151936),  # Qwen 2.5 0.5B
    (1536, 8960, 12, 2, 128, 151936),  # Qwen 2.5 1.5B
    (3584, 18944, 28, 4, 128, 152064),  # Qwen 2.5 7B
    (5120, 27648, 40, 8, 128, 152064),  # Qwen 2.5 32B
    (8192, 29568, 64, 8, 128, 0),  # Qwen 2.5 72B
    (2560, 9728, 32, 8, 128, 151936),  # Qwen 3 4B
    (2304, 9216, 8, 4, 256, 256000),  # Gemma 2 2B
    (4608, 36864, 32, 16, 128, 0),  # Gemma 2 27B
    (3072, 8192, 32, 32, 96, 32064),  # Phi 3 mini
    (2880, 2880, 64, 8, 64, 201088),  # GPT-OSS 20B
    (768, 3072, 12, 12, 64, 0),  # GPT-2
    (1600, 6400, 25, 25, 64, 0),  # GPT-2 XL
    (576, 1536, 9, 3, 64, 49152),  # SmolLM 135M
)
# DeepSeek V3: (N, K) of its attention and expert projections.
_MORE_WEIGHTS = ((2112, 7168), (576, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048), (512, 7168))


def _weights() -> tuple[tuple[int, int], ...]:
    """(N, K) of every projection of the models, whole and cut for 2, 4 and 8 GPUs as tensor parallelism does."""
    found = dict.fromkeys(_MORE_WEIGHTS)
    for hidden, mlp, heads, kv_heads, head, vocabulary in _MODELS:
        for gpus in (1, 2, 4, 8):
            wide = ((heads + 2 * kv_heads) * head, 2 * mlp, vocabulary)
            found.update(dict.fromkeys((n // gpus, hidden) for n in wide if n % (32 * gpus) == 0 and n))
            found.update(dict.fromkeys((hidden, k // gpus) for k in (heads * head, mlp) if k % (32 * gpus) == 0))
    return tuple((n, k) for n, k in found if n >= 256 and k >= 256)


_WEIGHTS = _weights()

#: Largest matrix, in elements, whose offsets inside a row block stay in 32 bits.
_MAX_ELEMENTS = 2**31
_MAX_PARTIAL_BYTES = 2**29


def _tiles(columns: Columns, task: Task) -> tuple[NDArray[Any], NDArray[Any]]:
    return ceil_div(task.shape["M"], columns["block_m"]), ceil_div(task.shape["N"], columns["block_n"])


def _accumulators(columns: Columns) -> NDArray[Any]:
    """FP32 accumulator registers a thread."""
    return columns["block_m"] * columns["block_n"] // (32 * columns["num_warps"])


def _warp_group(columns: Columns, task: Task) -> NDArray[np.bool_]:
    """Whether the compiler uses an MMA that reads both operands from shared memory (sm_90, sm_100): it needs 64 rows."""
    return (columns["block_m"] >= 64) & ((9, 0) <= task.device.capability < (12, 0))


def _shared(columns: Columns, task: Task) -> NDArray[np.int64]:
    """Shared memory a block, equal to what Triton 3.6 and 3.7 allocate for sm_90 and sm_80, at most 32 B over on sm_100.

    The pipeline keeps ``num_stages`` pairs of operand tiles for an MMA that reads them in place, and one pair less where
    registers hold the current one. Descriptor loads add an 8-byte barrier a pair. The persistent schedule, whose loads
    run on while a tile is stored, keeps the stored tile beside them; split_k passes its FP32 tile through shared memory
    after the loop, which a shallow pipeline is smaller than.
    """
    block_m, block_n, block_k = (columns[name].astype(np.int64) for name in ("block_m", "block_n", "block_k"))
    stages = columns["num_stages"].astype(np.int64)
    pair = 2 * (block_m + block_n) * block_k
    tma = columns["loader"] == "tma"
    buffers = np.where(_warp_group(columns, task), stages, stages - 1)
    tensor_memory = np.where(_warp_group(columns, task) & (task.device.capability[0] == 10), 32, 0)  # its barriers
    store = np.where(columns["schedule"] == "persistent", 2 * block_m * block_n, 0)
    partial_sum = np.where(columns["schedule"] == "split_k", 4 * block_m * block_n, 0)
    loop = pair * buffers + np.where(tma, 8 * buffers, 0) + store + tensor_memory
    return np.asarray(np.maximum(loop, partial_sum))


def _split_is_idle(columns: Columns, task: Task) -> NDArray[np.bool_]:
    n_m, n_n = _tiles(columns, task)
    too_short = ceil_div(task.shape["K"], columns["block_k"]) < 2 * columns["split"]
    too_many = n_m * n_n * columns["split"] > 16 * task.device.n_sms
    partial_bytes = 4 * n_m * n_n * columns["block_m"].astype(np.int64) * columns["block_n"] * columns["split"]
    return (columns["schedule"] == "split_k") & (too_short | too_many | (partial_bytes > _MAX_PARTIAL_BYTES))


def _persistent_is_idle(columns: Columns, task: Task) -> NDArray[np.bool_]:
    n_m, n_n = _tiles(columns, task)
    return (columns["schedule"] == "persistent") & (n_m * n_n <= task.device.n_sms * columns["programs_per_sm"])


def _persistent_does_not_fit(columns: Columns, task: Task) -> NDArray[np.bool_]:
    registers = _accumulators(columns) + 64
    fit = blocks_per_sm(task.device, _shared(columns, task), columns["num_warps"], registers)
    return (columns["schedule"] == "persistent") & (fit < columns["programs_per_sm"])


def _order_repeats(columns: Columns, task: Task) -> NDArray[np.bool_]:
    """A band as wide as the grid is the other raster with bands of one."""
    n_m, n_n = _tiles(columns, task)
    n_banded = np.where(columns["raster"] == "n", n_n, n_m)
    return (columns["group"] > 1) & (columns["group"] >= n_banded)


def _has_order(columns: Columns, task: Task) -> NDArray[np.bool_]:
    n_m, n_n = _tiles(columns, task)
    return (columns["schedule"] != "split_k") & (n_m > 1) & (n_n > 1)


def _is(name: str, value: str) -> Predicate:
    return lambda columns, _: columns[name] == value


_PARAMETERS = (
    power_of_two("block_m", 16, 256),
    power_of_two("block_n", 32, 256),
    power_of_two("block_k", 32, 128),
    integer_parameter("num_stages", (2, 3, 4, 5)),
    power_of_two("num_warps", 4, 8),
    categorical("loader", ("pointer", "tma")),
    categorical("schedule", ("tile", "split_k", "persistent")),
    power_of_two("split", 2, 16, launch=True, active=_is("schedule", "split_k"), neutral=1),
    power_of_two("programs_per_sm", 1, 2, launch=True, active=_is("schedule", "persistent"), neutral=1),
    categorical("raster", ("m", "n"), launch=True, active=_has_order, neutral="m"),
    Parameter("group", (1, 8), "power_of_two", launch=True, active=_has_order, neutral=1),
)


def _too_thin(columns: Columns, task: Task) -> NDArray[np.bool_]:
    return (columns["block_m"] < 64) & (task.shape["M"] > 128)


def _persistent_is_small(columns: Columns, _: Task) -> NDArray[np.bool_]:
    small = (columns["loader"] != "tma") | (columns["block_m"] < 64) | (columns["block_n"] < 64)
    return (columns["schedule"] == "persistent") & small


def _split_is_slow(columns: Columns, _: Task) -> NDArray[np.bool_]:
    return (columns["schedule"] == "split_k") & ((columns["block_k"] < 64) | (columns["block_m"] > 128))


# The rules that call a config too thin, small or slow cut what was over a fifth behind the best on every one of 62
# shapes of a first exhaustive search; they keep the space small enough to time all of it.
_RULES = (
    Rule(
        "tma needs a device of compute capability 9.0 or more",
        lambda c, t: (c["loader"] == "tma") & (t.device.capability < (9, 0)),
    ),
    Rule(
        "pointer loads need a block_k that divides K",
        lambda c, t: (c["loader"] == "pointer") & (t.shape["K"] % c["block_k"] != 0),
    ),
    Rule("over 128 accumulator registers a thread", lambda c, _: _accumulators(c) > 128),
    Rule("less than one 16 x 8 MMA tile a warp", lambda c, _: c["block_m"] * c["block_n"] < 128 * c["num_warps"]),
    Rule("block_m too thin: under 64 though M is over 128", _too_thin),
    Rule(
        "block_m over 64 and over the next power of two of M",
        lambda c, t: c["block_m"] > max(64, next_power_of_two(t.shape["M"])),
    ),
    Rule(
        "block_n over the next power of two of N",
        lambda c, t: c["block_n"] > next_power_of_two(t.shape["N"]),
    ),
    Rule("persistent too small: it needs tma and tiles of at least 64 x 64", _persistent_is_small),
    Rule("split_k too slow: it needs block_k of 64 or more and block_m of 128 or less", _split_is_slow),
    Rule("split_k: under 2 K blocks a part, over 16 blocks an SM, or over 512 MiB of partial sums", _split_is_idle),
    Rule(
        "shared memory over the device's limit a block",
        lambda c, t: _shared(c, t) > t.device.shared_per_block_bytes,
    ),
    Rule("persistent: no more tiles than programs, the same as tile", _persistent_is_idle),
    Rule("persistent: that many programs do not fit a multiprocessor", _persistent_does_not_fit),
    Rule("a band as wide as the grid repeats the other raster", _order_repeats),
)


class GemmSpec(KernelSpec):
    """BF16 GEMM with weights stored as ``nn.Linear`` does."""

    name = "gemm"
    shape_keys = ("M", "N", "K")
    program_module = "bo_tuner.kernels.triton.gemm"
    space = SearchSpace(_PARAMETERS, _RULES)

    def check_shape(self, shape: Shape) -> None:
        for key in ("N", "K"):
            if shape[key] % 32:
                raise UserError(f"{key}: {shape[key]} is not a multiple of 32")
        for first, second in ("MK", "NK", "MN"):
            if shape[first] * shape[second] >= _MAX_ELEMENTS:
                raise UserError(
                    f"{first}: {shape[first]} x {second} {shape[second]} is a matrix of 2^31 elements or more"
                )

    def flops(self, shape: Shape) -> float:
        return 2.0 * shape["M"] * shape["N"] * shape["K"]

    def min_bytes(self, shape: Shape) -> float:
        m, n, k = (float(shape[key]) for key in self.shape_keys)
        return 2.0 * (m * k + n * k + m * n)

    def shared_bytes(self, columns: Columns, task: Task) -> NDArray[np.int64]:
        return _shared(columns, task)

    def default_config(self, task: Task) -> Config:
        """The tile of the Triton tutorials, cut down to what is valid here."""
        pool = self.pool(task)
        wished = {"block_m": 128, "block_n": 128, "block_k": 64, "num_stages": 4, "num_warps": 8, "group": 8}
        distance = sum(np.abs(np.log2(pool.columns[name] / value)) for name, value in wished.items())
        distance = distance + (pool.columns["schedule"] != "tile") * 4 + (pool.columns["loader"] != "tma")
        return pool.config(int(np.argmin(distance + (pool.columns["raster"] != "m") * 0.5)))

    def draw_shape(self, rng: np.random.Generator) -> dict[str, int]:
        """A projection of a public language model, cut for 1 to 8 GPUs, times a number of tokens.

        Tokens: 35 % decode (1 to 256), 25 % small batches (128 to 1024), 40 % prefill (1024 to 16384); of each, about
        half are powers of two, a quarter multiples of 64 (of 8 in decode), a quarter any number. Tokens are halved until the
        product is at most 5.5e11 flop, so that timing every config stays affordable.
        """
        n, k = _WEIGHTS[rng.integers(len(_WEIGHTS))]
        low, high = ((1, 256), (128, 1024), (1024, 16384))[rng.choice(3, p=(0.35, 0.25, 0.4))]
        tokens = float(np.exp(rng.uniform(np.log(low), np.log(high + 1))))
        step = 8 if high == 256 else 64
        kind = rng.choice(3, p=(0.5, 0.25, 0.25))
        m = int((2.0 ** np.round(np.log2(tokens)), max(step, tokens // step * step), tokens)[kind])
        while 2.0 * m * n * k > _MAX_FLOPS:
            m //= 2
        return {"M": m, "N": n, "K": k}

    def features(self, pool: Pool) -> dict[str, NDArray[np.float64]]:
        """Waves, padding, reuse and pressure of every config; sizes in log2, all else as ratios."""
        task, columns = pool.task, pool.columns
        device, (m, n, k) = task.device, (task.shape[key] for key in self.shape_keys)
        block_m, block_n, block_k, stages, warps, split, per_sm = (
            columns[name].astype(np.float64)
            for name in ("block_m", "block_n", "block_k", "num_stages", "num_warps", "split", "programs_per_sm")
        )
        persistent = columns["schedule"] == "persistent"
        n_m, n_n = (count.astype(np.float64) for count in _tiles(columns, task))
        accumulators, shared = _accumulators(columns).astype(np.float64), _shared(columns, task).astype(np.float64)
        resident = blocks_per_sm(device, shared, columns["num_warps"], accumulators + 48)
        resident = np.where(persistent, per_sm, resident)
        blocks = n_m * n_n * split
        full, last_wave = waves(blocks, device, resident)
        by_sm, last_row = waves(blocks, device, np.ones_like(blocks))
        k_blocks = np.ceil(k / block_k) / split

        # What one wave reads: a patch of the grid `rows` x `cols` tiles, as the visiting order lays it out.
        at_once = np.minimum(blocks, device.n_sms * resident) / split
        along_n = columns["raster"] == "n"
        banded = np.minimum(columns["group"], np.where(along_n, n_n, n_m))
        banded = np.minimum(np.where(columns["schedule"] == "split_k", n_m, banded), at_once)
        other = np.minimum(at_once / banded, np.where(along_n, n_m, n_n))
        rows, cols = np.where(along_n, other, banded), np.where(along_n, banded, other)
        patch = rows * block_m + cols * block_n
        tile_intensity = block_m * block_n / (block_m + block_n)
        useful = m * n / (n_m * block_m * n_n * block_n)
        return {
            "log2_m": np.full(len(pool), np.log2(m)),
            "log2_n": np.full(len(pool), np.log2(n)),
            "log2_k": np.full(len(pool), np.log2(k)),
            "log2_problem_intensity": np.full(
                len(pool), np.log2(self.flops(task.shape) / self.min_bytes(task.shape) / device.ridge)
            ),
            "log2_tiles_m": np.log2(n_m),
            "log2_tiles_n": np.log2(n_n),
            "log2_blocks_per_sm_of_chip": np.log2(by_sm),
            "log2_waves": np.log2(full),
            "last_wave_use": last_wave,
            "last_row_use": last_row,
            "chip_use": np.minimum(by_sm, 1.0),
            "padding_m": m / (n_m * block_m),
            "padding_n": n / (n_n * block_n),
            "padding_k": k / (np.ceil(k / block_k) * block_k),
            "useful_share": useful * np.where(full < 1, np.minimum(by_sm, 1.0), last_wave),
            "log2_k_blocks": np.log2(k_blocks),
            "k_blocks_over_stages": np.log2(k_blocks / stages),
            "shared_share": shared / device.shared_per_block_bytes,
            "resident_blocks": resident,
            "resident_warps": resident * warps,
            "accumulators_share": accumulators / 255,
            "log2_bytes_in_flight": np.log2((stages - 1) * 2 * (block_m + block_n) * block_k * resident),
            "log2_tile_intensity": np.log2(tile_intensity / device.ridge),
            "log2_patch_intensity": np.log2(rows * block_m * cols * block_n / patch / device.ridge),
            "log2_patch_over_l2": np.log2(2 * patch * k / device.l2_bytes),
            "partial_traffic": np.where(split > 1, 8 * split * m * n, 0) / self.min_bytes(task.shape),
            "warp_group": _warp_group(columns, task).astype(np.float64),
            "log2_aspect": np.log2(block_m / block_n),
            "log2_tile": np.log2(block_m * block_n),
            "log2_tile_per_warp": np.log2(block_m * block_n / warps),
        }
