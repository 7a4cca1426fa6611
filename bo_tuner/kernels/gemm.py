"""GEMM: C[M, N] = A[M, K] · B[N, K]ᵀ in BF16 with FP32 accumulation; B is a weight as ``nn.Linear`` stores it.

Any M is allowed; N and K must be multiples of 32, so that every row starts on a 64-byte line and the copy engine and
vector loads apply. Where a block depth does not divide K, the copy engine fills with zeros; pointer loads would need a
mask in the inner loop, so such a config is refused.

``schedule``: ``tile`` is one program a tile; ``persistent`` one a multiprocessor, which walks over tiles and stores one
while it loads the next; ``split_k`` gives a tile to ``split`` programs, each with a share of K. ``raster`` and ``group``
are the order of the tiles: bands of ``group`` tile rows (raster ``m``) or columns (``n``). A block of 96, 160, 192, 288 or
320 is a power of two and a strip; with few rows of A the operands are swapped (``gemm_tiles.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.kernels.gemm_tiles import has_strip, stored_in_halves, swapped
from bo_tuner.kernels.language_models import WEIGHTS
from bo_tuner.kernels.occupancy import blocks_per_sm, waves
from bo_tuner.kernels.spec import KernelSpec, Shape, ceil_div, next_power_of_two
from bo_tuner.space import Columns, Config, Pool, Predicate, Rule, SearchSpace, categorical, logarithmic, power_of_two
from bo_tuner.space import integer as integer_parameter
from bo_tuner.task import Task

_MAX_FLOPS = 5.5e11

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
    rows = np.where(swapped(columns["block_m"], columns["block_n"]), columns["block_n"], columns["block_m"])
    return (rows >= 64) & ((9, 0) <= task.device.capability < (12, 0))


def _pair_bytes(columns: Columns) -> NDArray[np.int64]:
    """Bytes of one block of A and one of B."""
    return 2 * (columns["block_m"].astype(np.int64) + columns["block_n"]) * columns["block_k"]


def _shared(columns: Columns, task: Task) -> NDArray[np.int64]:
    """Shared memory a block, equal to what Triton 3.6 and 3.7 allocate for sm_90 and sm_80, at most 48 B over on sm_100.

    The pipeline keeps ``num_stages`` pairs of operand tiles for an MMA that reads them in place, and one pair less where
    registers hold the current one. Descriptor loads add an 8-byte barrier a pair. The persistent schedule, whose loads
    run on while a tile is stored, keeps what is stored beside them; split_k passes its FP32 tile through shared memory
    after the loop, which a shallow pipeline is smaller than, and so does a tile of 256 rows its result on sm_80.
    """
    block_m, block_n = (columns[name].astype(np.int64) for name in ("block_m", "block_n"))
    stages = columns["num_stages"].astype(np.int64)
    tma = columns["loader"] == "tma"
    buffers = np.where(_warp_group(columns, task), stages, stages - 1)
    blackwell = task.device.capability[0] == 10
    barriers = np.where(_warp_group(columns, task) & blackwell, 32, 0)  # of tensor memory
    barriers = barriers + np.where(has_strip(block_m) | has_strip(block_n), 16 * blackwell, 0)
    stored = 2 * block_m * block_n // np.where(stored_in_halves(block_m, block_n), 2, 1)
    store = np.where(columns["schedule"] == "persistent", stored, 0)
    partial_sum = np.where(columns["schedule"] == "split_k", 4 * block_m * block_n, 0)
    result = np.where((block_m == 256) & ~_warp_group(columns, task), 2 * block_m * block_n, 0)
    loop = _pair_bytes(columns) * buffers + np.where(tma, 8 * buffers, 0) + store + barriers
    return np.asarray(np.maximum.reduce([loop, partial_sum, result]))


def _split_is_idle(columns: Columns, task: Task) -> NDArray[np.bool_]:
    n_m, n_n = _tiles(columns, task)
    too_short = ceil_div(task.shape["K"], columns["block_k"]) < 2 * columns["split"]
    too_many = n_m * n_n * columns["split"] > 8 * task.device.n_sms
    partial_bytes = 4 * n_m * n_n * columns["block_m"].astype(np.int64) * columns["block_n"] * columns["split"]
    return (columns["schedule"] == "split_k") & (too_short | too_many | (partial_bytes > _MAX_PARTIAL_BYTES))


def _split_is_slow(columns: Columns, task: Task) -> NDArray[np.bool_]:
    n_m, n_n = _tiles(columns, task)
    busy = (task.shape["M"] > 128) & (2 * n_m * n_n > task.device.n_sms)
    return (columns["schedule"] == "split_k") & ((columns["block_k"] < 64) | (columns["block_m"] > 64) | busy)


def _persistent_is_idle(columns: Columns, task: Task) -> NDArray[np.bool_]:
    n_m, n_n = _tiles(columns, task)
    return (columns["schedule"] == "persistent") & (n_m * n_n <= task.device.n_sms)


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
    logarithmic("block_m", (16, 32, 64, 96, 128, 160, 192, 256, 288)),
    logarithmic("block_n", (32, 64, 96, 128, 160, 192, 256, 320)),
    power_of_two("block_k", 32, 256),
    integer_parameter("num_stages", (3, 4, 5, 6, 7, 8)),
    power_of_two("num_warps", 4, 8),
    categorical("loader", ("pointer", "tma")),
    categorical("schedule", ("tile", "split_k", "persistent")),
    integer_parameter("split", (2, 3, 4, 6, 8), launch=True, active=_is("schedule", "split_k"), neutral=1),
    categorical("raster", ("m", "n"), launch=True, active=_has_order, neutral="m"),
    power_of_two("group", 1, 16, launch=True, active=_has_order, neutral=1),
)


def _area(columns: Columns) -> NDArray[Any]:
    return columns["block_m"] * columns["block_n"]


def _too_thin(columns: Columns, task: Task) -> NDArray[np.bool_]:
    return (columns["block_m"] < 64) & (task.shape["M"] > 128)


def _too_narrow(columns: Columns, _: Task) -> NDArray[np.bool_]:
    narrow = (columns["block_n"] == 32) & (columns["block_m"] > 64)
    return narrow | ((columns["block_n"] <= 64) & (columns["block_m"] >= 256))


def _too_small(columns: Columns, task: Task) -> NDArray[np.bool_]:
    n_m, n_n = _tiles(columns, task)
    return (n_m * n_n > 16 * task.device.n_sms) & (_area(columns) < 128 * 128) & (task.shape["M"] > 512)


def _wrong_depth(columns: Columns, _: Task) -> NDArray[np.bool_]:
    area, depth = _area(columns), columns["block_k"]
    shallow = (depth == 32) & (area < 128 * 128)
    return shallow | ((depth == 128) & (area > 128 * 160)) | ((depth == 256) & (columns["block_m"] > 32))


def _strip_is_alone(columns: Columns, _: Task) -> NDArray[np.bool_]:
    rows, more = has_strip(columns["block_m"]), has_strip(columns["block_n"])
    plain = (columns["schedule"] == "tile") & (columns["loader"] == "tma")
    # The MMA's rows are a multiple of 64, so the strip must lie along its columns or be 64 rows itself.
    fits = np.where(rows, (columns["block_m"] % 64 == 0) | (columns["block_n"] % 64 == 0), columns["block_m"] % 64 == 0)
    return (rows | more) & ~(plain & fits & ~(rows & more))


def _pointer_is_slow(columns: Columns, task: Task) -> NDArray[np.bool_]:
    return (columns["loader"] == "pointer") & (columns["block_m"] > 64) & (task.device.capability >= (9, 0))


def _too_shallow(columns: Columns, _: Task) -> NDArray[np.bool_]:
    return _pair_bytes(columns) * columns["num_stages"] < 24 * 1024


def _persistent_is_small(columns: Columns, _: Task) -> NDArray[np.bool_]:
    small = (columns["loader"] != "tma") | (columns["block_m"] < 64) | (_area(columns) < 64 * 128)
    return (columns["schedule"] == "persistent") & small


# The rules that call a config too thin, narrow, small, slow or shallow cut what was never within 2 % of the best on 160
# shapes of an earlier exhaustive search of an H200, or cost the best of one shape at most 1.3 %; they keep the space
# small enough to time all of it.
_RULES = (
    Rule(
        "tma needs a device of compute capability 9.0 or more",
        lambda c, t: (c["loader"] == "tma") & (t.device.capability < (9, 0)),
    ),
    Rule(
        "pointer loads need a block_k that divides K",
        lambda c, t: (c["loader"] == "pointer") & (t.shape["K"] % c["block_k"] != 0),
    ),
    Rule("pointer too slow: where tma is, block_m of 64 or less", _pointer_is_slow),
    Rule("a block that is no power of two: only one, by tile and tma, with whole MMA rows", _strip_is_alone),
    Rule("over 192 accumulator registers a thread", lambda c, _: _accumulators(c) > 192),
    Rule(
        "under 32 accumulator registers a thread of 8 warps",
        lambda c, _: (c["num_warps"] == 8) & (_accumulators(c) < 32),
    ),
    Rule("block_m too thin: under 64 though M is over 128", _too_thin),
    Rule(
        "block_m over 64 and over the next power of two of M",
        lambda c, t: c["block_m"] > max(64, next_power_of_two(t.shape["M"])),
    ),
    Rule(
        "block_n over the next power of two of N",
        lambda c, t: c["block_n"] > next_power_of_two(t.shape["N"]),
    ),
    Rule("block_n too narrow: 32 with block_m over 64, or 64 with 256 and more", _too_narrow),
    Rule("tiles too small: under 128 x 128, over 16 a multiprocessor", _too_small),
    Rule("block_k of another size of tile: 32 from 128 x 128 on, 128 up to 128 x 160, 256 up to 32 rows", _wrong_depth),
    Rule("persistent too small: it needs tma, 64 rows and tiles of at least 64 x 128", _persistent_is_small),
    Rule(
        "split_k too slow: it needs block_k of 64, block_m up to 64, and M up to 128 or half the SMs idle",
        _split_is_slow,
    ),
    Rule("split_k: under 2 K blocks a part, over 8 blocks an SM, or over 512 MiB of partial sums", _split_is_idle),
    Rule(
        "shared memory over the device's limit a block",
        lambda c, t: _shared(c, t) > t.device.shared_per_block_bytes,
    ),
    Rule("pipeline too shallow: under 24 KiB", _too_shallow),
    Rule("persistent: no more tiles than programs, the same as tile", _persistent_is_idle),
    Rule("a band as wide as the grid repeats the other raster", _order_repeats),
)


class GemmSpec(KernelSpec):
    """BF16 GEMM with weights stored as ``nn.Linear`` does."""

    name = "gemm"
    shape_keys = ("M", "N", "K")
    program_module = "bo_tuner.kernels.triton.gemm"
    layout_modules = ("bo_tuner.kernels.gemm_tiles",)
    compiled_dimensions = ()
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
        n, k = WEIGHTS[rng.integers(len(WEIGHTS))]
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
        block_m, block_n, block_k, stages, warps, split = (
            columns[name].astype(np.float64)
            for name in ("block_m", "block_n", "block_k", "num_stages", "num_warps", "split")
        )
        persistent = columns["schedule"] == "persistent"
        n_m, n_n = (count.astype(np.float64) for count in _tiles(columns, task))
        accumulators, shared = _accumulators(columns).astype(np.float64), _shared(columns, task).astype(np.float64)
        resident = blocks_per_sm(device, shared, columns["num_warps"], accumulators + 48)
        resident = np.where(persistent, 1.0, resident)
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
            "swapped": swapped(columns["block_m"], columns["block_n"]).astype(np.float64),
            "strip": (has_strip(columns["block_m"]) | has_strip(columns["block_n"])).astype(np.float64),
            "log2_aspect": np.log2(block_m / block_n),
            "log2_tile": np.log2(block_m * block_n),
            "log2_tile_per_warp": np.log2(block_m * block_n / warps),
        }
