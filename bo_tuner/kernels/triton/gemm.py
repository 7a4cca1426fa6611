"""GEMM on the GPU: C[M, N] = A[M, K] · B[N, K]ᵀ, BF16 in and out, FP32 accumulation.

One jit function a schedule. All share the inner loop and the order in which tiles are visited, so a config means the
same thing everywhere. Tile order, group width and split factor are run-time integers: they compile nothing.

Triton's blocks are powers of two. A tile of 96, 160, 192, 288 or 320 is a power of two and a strip beside it, two
accumulators that share one operand: without such sizes, a chip that 1.1 waves of tiles fill stands half idle.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from bo_tuner.kernels.gemm_tiles import main_and_strip, stored_in_halves, swapped
from bo_tuner.kernels.program import Buffers, Build, Launch, Program
from bo_tuner.kernels.spec import ceil_div
from bo_tuner.kernels.triton.descriptors import described
from bo_tuner.space import Config
from bo_tuner.task import Task

#: The interpreter multiplies the bit patterns of bfloat16 (Triton 3.6 to 3.9), so tiles are widened there.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_RUN_TIME = ["M", "group", "along_n", "parts", "n_tiles"]


@triton.jit
def tile_position(tile, n_m, n_n, group, along_n):
    """Row and column of the ``tile``-th tile: bands ``group`` tiles wide, walked across the other dimension.

    ``along_n`` = 0 makes bands of tile rows, 1 bands of tile columns. A band is short where the tiles end.
    """
    n_banded = tl.where(along_n != 0, n_n, n_m)
    n_other = tl.where(along_n != 0, n_m, n_n)
    band = tile // (group * n_other)
    width = tl.minimum(n_banded - band * group, group)
    inside = tile - band * group * n_other
    banded = band * group + inside % width
    other = inside // width
    return tl.where(along_n != 0, other, banded), tl.where(along_n != 0, banded, other)


@triton.jit
def zeros(ROWS: tl.constexpr, COLUMNS: tl.constexpr, SWAP: tl.constexpr):
    """An FP32 accumulator, transposed where the operands are swapped."""
    if SWAP:
        return tl.zeros((COLUMNS, ROWS), dtype=tl.float32)
    else:
        return tl.zeros((ROWS, COLUMNS), dtype=tl.float32)


@triton.jit
def add_product(x, y, acc, SWAP: tl.constexpr, WIDEN: tl.constexpr):
    """Add x·yᵀ, or its transpose, to ``acc``."""
    if WIDEN:
        x, y = x.to(tl.float32), y.to(tl.float32)
    if SWAP:
        return tl.dot(y, x.T, acc)
    else:
        return tl.dot(x, y.T, acc)


@triton.jit
def product(
    a, b, strip, row_m, row_n, M, N, K, k_first, k_last,
    BLOCK_M: tl.constexpr, EXTRA_M: tl.constexpr, BLOCK_N: tl.constexpr, EXTRA_N: tl.constexpr, BLOCK_K: tl.constexpr,
    TMA: tl.constexpr, SWAP: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """FP32 tile of A·Bᵀ over the K blocks ``k_first`` to ``k_last`` (excluded), and the strip beside it.

    The strip is the EXTRA_M rows below the tile or the EXTRA_N columns to its right; without one the second result is
    of no use. No K mask: descriptors read zeros past the end, and pointer loads are used only where BLOCK_K divides K.
    """
    acc = zeros(BLOCK_M, BLOCK_N, SWAP)
    extra = zeros(EXTRA_M if EXTRA_M else BLOCK_M, EXTRA_N if EXTRA_N else BLOCK_N, SWAP)
    if TMA:
        for block in range(k_first, k_last):
            x = a.load([row_m, block * BLOCK_K])
            y = b.load([row_n, block * BLOCK_K])
            if EXTRA_M:
                z = strip.load([row_m + BLOCK_M, block * BLOCK_K])
            if EXTRA_N:
                z = strip.load([row_n + BLOCK_N, block * BLOCK_K])
            acc = add_product(x, y, acc, SWAP, WIDEN)
            if EXTRA_M:
                extra = add_product(z, y, extra, SWAP, WIDEN)
            if EXTRA_N:
                extra = add_product(x, z, extra, SWAP, WIDEN)
    else:
        # Rows past the end wrap around: they read valid memory and are never stored.
        rows_a = (row_m + tl.arange(0, BLOCK_M)) % M
        rows_b = (row_n + tl.arange(0, BLOCK_N)) % N
        depth = k_first * BLOCK_K + tl.arange(0, BLOCK_K)
        a_at = a + rows_a.to(tl.int64)[:, None] * K + depth[None, :]
        b_at = b + rows_b.to(tl.int64)[:, None] * K + depth[None, :]
        for _ in range(k_first, k_last):
            acc = add_product(tl.load(a_at), tl.load(b_at), acc, SWAP, WIDEN)
            a_at += BLOCK_K
            b_at += BLOCK_K
    if SWAP:
        acc, extra = acc.T, extra.T
    return acc, extra


@triton.jit
def store_tile(c, acc, row_m, row_n, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Write a tile to C as bfloat16, rows and columns past the end left out."""
    rows = row_m + tl.arange(0, BLOCK_M)
    columns = row_n + tl.arange(0, BLOCK_N)
    at = c + rows.to(tl.int64)[:, None] * N + columns[None, :]
    tl.store(at, acc.to(tl.bfloat16), mask=(rows < M)[:, None] & (columns < N)[None, :])


@triton.jit(do_not_specialize=_RUN_TIME)
def gemm_tile(
    a, b, strip, c, M, N, K, group, along_n,
    BLOCK_M: tl.constexpr, EXTRA_M: tl.constexpr, BLOCK_N: tl.constexpr, EXTRA_N: tl.constexpr, BLOCK_K: tl.constexpr,
    TMA: tl.constexpr, SWAP: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One program a tile of (BLOCK_M + EXTRA_M) × (BLOCK_N + EXTRA_N), at most one of the extras not being 0."""
    n_m, n_n = tl.cdiv(M, BLOCK_M + EXTRA_M), tl.cdiv(N, BLOCK_N + EXTRA_N)
    pid_m, pid_n = tile_position(tl.program_id(0), n_m, n_n, group, along_n)
    row_m, row_n = pid_m * (BLOCK_M + EXTRA_M), pid_n * (BLOCK_N + EXTRA_N)
    acc, extra = product(
        a, b, strip, row_m, row_n, M, N, K, 0, tl.cdiv(K, BLOCK_K),
        BLOCK_M, EXTRA_M, BLOCK_N, EXTRA_N, BLOCK_K, TMA, SWAP, WIDEN,
    )  # fmt: skip
    store_tile(c, acc, row_m, row_n, M, N, BLOCK_M, BLOCK_N)
    if EXTRA_M:
        store_tile(c, extra, row_m + BLOCK_M, row_n, M, N, EXTRA_M, BLOCK_N)
    if EXTRA_N:
        store_tile(c, extra, row_m, row_n + BLOCK_N, M, N, BLOCK_M, EXTRA_N)


@triton.jit(do_not_specialize=_RUN_TIME)
def gemm_persistent(
    a, b, c, M, N, K, group, along_n, n_tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    TMA: tl.constexpr, SWAP: tl.constexpr, HALVES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One program a multiprocessor, each walking over every so-many-th tile; ``c`` is a descriptor.

    The copy engine stores a tile while the loads of the next one run on. HALVES stores the left and the right half of a
    large tile one after the other, which leaves room for another stage of the pipeline.
    """
    n_m, n_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=True):
        pid_m, pid_n = tile_position(tile, n_m, n_n, group, along_n)
        row_m, row_n = pid_m * BLOCK_M, pid_n * BLOCK_N
        acc, _ = product(
            a, b, None, row_m, row_n, M, N, K, 0, tl.cdiv(K, BLOCK_K),
            BLOCK_M, 0, BLOCK_N, 0, BLOCK_K, TMA, SWAP, WIDEN,
        )  # fmt: skip
        if HALVES:
            left, right = acc.reshape((BLOCK_M, 2, BLOCK_N // 2)).permute((0, 2, 1)).split()
            c.store([row_m, row_n], left.to(tl.bfloat16))
            c.store([row_m, row_n + BLOCK_N // 2], right.to(tl.bfloat16))
        else:
            c.store([row_m, row_n], acc.to(tl.bfloat16))


@triton.jit(do_not_specialize=_RUN_TIME)
def gemm_split(
    a, b, c, partial, arrived, M, N, K, parts, n_tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    TMA: tl.constexpr, SWAP: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """``parts`` programs a tile, each over its share of K; the last to arrive adds the partial tiles in order.

    ``partial`` is an FP32 scratch of parts × tiles × BLOCK_M × BLOCK_N, ``arrived`` one zeroed counter a tile, left
    zero for the next launch. The sum's order is fixed, so the result does not depend on who arrives last.
    """
    tile, part = tl.program_id(0) % n_tiles, tl.program_id(0) // n_tiles
    n_m = tl.cdiv(M, BLOCK_M)
    row_m, row_n = (tile % n_m) * BLOCK_M, (tile // n_m) * BLOCK_N
    n_blocks = tl.cdiv(K, BLOCK_K)
    k_first, k_last = part * n_blocks // parts, (part + 1) * n_blocks // parts
    acc, _ = product(
        a, b, None, row_m, row_n, M, N, K, k_first, k_last, BLOCK_M, 0, BLOCK_N, 0, BLOCK_K, TMA, SWAP, WIDEN
    )

    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mine = partial + (part * n_tiles + tile).to(tl.int64) * (BLOCK_M * BLOCK_N)
    tl.store(mine + inside, acc)
    tl.debug_barrier()  # every thread's stores come before the one thread that counts this program in
    if tl.atomic_add(arrived + tile, 1, sem="acq_rel") == parts - 1:
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for other in range(0, parts):
            theirs = partial + (other * n_tiles + tile).to(tl.int64) * (BLOCK_M * BLOCK_N)
            total += tl.load(theirs + inside, cache_modifier=".cg")  # past the L1, which may hold older values
        store_tile(c, total, row_m, row_n, M, N, BLOCK_M, BLOCK_N)
        tl.store(arrived + tile, 0)


_FUNCTIONS = {"tile": gemm_tile, "persistent": gemm_persistent, "split_k": gemm_split}


class GemmProgram(Program):
    """Compile, launch and judge the GEMM."""

    def build(self, config: Config, task: Task) -> Build:
        function = _FUNCTIONS[str(config["schedule"])]
        constants = _constants(config)
        types = {"c": "*bf16", "partial": "*fp32", "arrived": "*i32", **dict.fromkeys(constants, "constexpr")}
        if constants["TMA"]:
            blocks = _blocks(constants)
            types |= {name: f"tensordesc<bf16{blocks[name]}>" for name in ("a", "b", "strip") if name in blocks}
        else:
            types |= {"a": "*bf16", "b": "*bf16"}
        if function is gemm_persistent:
            types["c"] = f"tensordesc<bf16{_blocks(constants)['c']}>"
        signature = {name: types.get(name, "i32") for name in function.arg_names}
        if "strip" in signature and "strip" not in types:
            signature["strip"], constants = "constexpr", {"strip": None, **constants}
        pointers = tuple(name for name, kind in signature.items() if kind.startswith("*"))
        return Build(
            function=function,
            signature=signature,
            constants=constants,
            divisible=(*pointers, "N", "K"),
            num_warps=int(config["num_warps"]),
            num_stages=int(config["num_stages"]),
        )

    def buffers(self, task: Task, seed: int, where: torch.device | str) -> Buffers:
        generator = torch.Generator(device=where).manual_seed(seed)
        m, n, k = (task.shape[key] for key in "MNK")
        a, b = (
            torch.randn(shape, generator=generator, device=where, dtype=torch.bfloat16) for shape in ((m, k), (n, k))
        )
        return Buffers((a, b), torch.empty((m, n), device=where, dtype=torch.bfloat16))

    def launch(self, config: Config, task: Task, buffers: Buffers) -> Launch:
        m, n, k = (task.shape[key] for key in "MNK")
        constants, schedule = _constants(config), config["schedule"]
        blocks, tail = _blocks(constants), tuple(constants.values())
        a, b = buffers.inputs
        operands: tuple[Any, ...] = (a, b)
        if constants["TMA"]:
            operands = (described(buffers, a, blocks["a"]), described(buffers, b, blocks["b"]))
        n_tiles = ceil_div(m, int(config["block_m"])) * ceil_div(n, int(config["block_n"]))
        if schedule == "split_k":
            parts = int(config["split"])
            n_partial = parts * n_tiles * constants["BLOCK_M"] * constants["BLOCK_N"]
            partial = self._scratch(buffers, "partial", n_partial, torch.float32)
            arrived = self._scratch(buffers, "arrived", n_tiles, torch.int32)
            args = (*operands, buffers.output, partial, arrived, m, n, k, parts, n_tiles, *tail)
            return Launch((n_tiles * parts, 1, 1), args)
        order = (int(config.get("group", 1)), int(config.get("raster", "m") == "n"))
        if schedule == "persistent":
            result = described(buffers, buffers.output, blocks["c"])
            return Launch((task.device.n_sms, 1, 1), (*operands, result, m, n, k, *order, n_tiles, *tail))
        strip = described(buffers, a if constants["EXTRA_M"] else b, blocks["strip"]) if "strip" in blocks else None
        return Launch((n_tiles, 1, 1), (*operands, strip, buffers.output, m, n, k, *order, *tail))

    @staticmethod
    def _scratch(buffers: Buffers, name: str, n_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A zeroed scratch of at least this size, shared by all configs of the task."""
        if name not in buffers.scratch or buffers.scratch[name].numel() < n_elements:
            buffers.scratch[name] = torch.zeros(n_elements, device=buffers.output.device, dtype=dtype)
        return buffers.scratch[name]

    def reference(self, buffers: Buffers) -> torch.Tensor:
        a, b = buffers.inputs
        return a.float() @ b.float().T

    def baselines(self, buffers: Buffers) -> Mapping[str, Callable[[], object]]:
        a, b = buffers.inputs
        return {"cublas": lambda: torch.mm(a, b.T, out=buffers.output)}


def _constants(config: Config) -> dict[str, Any]:
    """Constexpr arguments, in the order of the config's jit function."""
    schedule, block_m, block_n = config["schedule"], int(config["block_m"]), int(config["block_n"])
    (main_m, extra_m), (main_n, extra_n) = main_and_strip(block_m), main_and_strip(block_n)
    tile: dict[str, Any] = {"BLOCK_M": main_m, "BLOCK_N": main_n, "BLOCK_K": int(config["block_k"])}
    if schedule == "tile":
        tile = {"BLOCK_M": main_m, "EXTRA_M": extra_m, "BLOCK_N": main_n, "EXTRA_N": extra_n, **tile}
    tile |= {"TMA": config["loader"] == "tma", "SWAP": swapped(block_m, block_n)}
    if schedule == "persistent":
        tile["HALVES"] = stored_in_halves(block_m, block_n)
    return {**tile, "WIDEN": INTERPRETED}


def _blocks(constants: Mapping[str, Any]) -> dict[str, list[int]]:
    """What one descriptor load or store moves: [rows, columns]."""
    rows, columns, depth = (constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    blocks = {"a": [rows, depth], "b": [columns, depth], "c": [rows, columns // (2 if constants.get("HALVES") else 1)]}
    if extra := constants.get("EXTRA_M", 0) + constants.get("EXTRA_N", 0):
        blocks["strip"] = [extra, depth]
    return blocks


PROGRAM = GemmProgram()
