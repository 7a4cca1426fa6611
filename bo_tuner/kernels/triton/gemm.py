"""GEMM on the GPU: C[M, N] = A[M, K] · B[N, K]ᵀ, BF16 in and out, FP32 accumulation.

One jit function a schedule. All share the inner loop and the order in which tiles are visited, so a config means the
same thing everywhere. Tile order, group width and split factor are run-time integers: they compile nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from bo_tuner.kernels.program import Buffers, Build, Launch, Program
from bo_tuner.kernels.spec import ceil_div
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
def product(
    a, b, row_m, row_n, M, N, K, k_first, k_last,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """FP32 tile of A·Bᵀ over the K blocks ``k_first`` to ``k_last`` (excluded).

    No K mask: descriptors read zeros past the end, and pointer loads are used only where BLOCK_K divides K.
    """
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if TMA:
        for block in range(k_first, k_last):
            a_tile = a.load([row_m, block * BLOCK_K])
            b_tile = b.load([row_n, block * BLOCK_K])
            if WIDEN:
                a_tile, b_tile = a_tile.to(tl.float32), b_tile.to(tl.float32)
            acc = tl.dot(a_tile, b_tile.T, acc)
    else:
        # Rows past the end wrap around: they read valid memory and are never stored.
        rows_a = (row_m + tl.arange(0, BLOCK_M)) % M
        rows_b = (row_n + tl.arange(0, BLOCK_N)) % N
        depth = k_first * BLOCK_K + tl.arange(0, BLOCK_K)
        a_at = a + rows_a.to(tl.int64)[:, None] * K + depth[None, :]
        b_at = b + rows_b.to(tl.int64)[None, :] * K + depth[:, None]
        for _ in range(k_first, k_last):
            a_tile, b_tile = tl.load(a_at), tl.load(b_at)
            if WIDEN:
                a_tile, b_tile = a_tile.to(tl.float32), b_tile.to(tl.float32)
            acc = tl.dot(a_tile, b_tile, acc)
            a_at += BLOCK_K
            b_at += BLOCK_K
    return acc


@triton.jit
def store_tile(c, acc, row_m, row_n, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Write a tile to C as bfloat16, rows and columns past the end left out."""
    rows = row_m + tl.arange(0, BLOCK_M)
    columns = row_n + tl.arange(0, BLOCK_N)
    at = c + rows.to(tl.int64)[:, None] * N + columns[None, :]
    tl.store(at, acc.to(tl.bfloat16), mask=(rows < M)[:, None] & (columns < N)[None, :])


@triton.jit(do_not_specialize=_RUN_TIME)
def gemm_tile(
    a, b, c, M, N, K, group, along_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One program a tile."""
    pid_m, pid_n = tile_position(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), group, along_n)
    row_m, row_n = pid_m * BLOCK_M, pid_n * BLOCK_N
    acc = product(a, b, row_m, row_n, M, N, K, 0, tl.cdiv(K, BLOCK_K), BLOCK_M, BLOCK_N, BLOCK_K, TMA, WIDEN)
    store_tile(c, acc, row_m, row_n, M, N, BLOCK_M, BLOCK_N)


@triton.jit(do_not_specialize=_RUN_TIME)
def gemm_persistent(
    a, b, c, M, N, K, group, along_n, n_tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """As many programs as fit the chip, each walking over every so-many-th tile; ``c`` is a descriptor.

    The copy engine stores a tile while the loads of the next one run on.
    """
    n_m, n_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=True):
        pid_m, pid_n = tile_position(tile, n_m, n_n, group, along_n)
        row_m, row_n = pid_m * BLOCK_M, pid_n * BLOCK_N
        acc = product(a, b, row_m, row_n, M, N, K, 0, tl.cdiv(K, BLOCK_K), BLOCK_M, BLOCK_N, BLOCK_K, TMA, WIDEN)
        c.store([row_m, row_n], acc.to(tl.bfloat16))


@triton.jit(do_not_specialize=_RUN_TIME)
def gemm_split(
    a, b, c, partial, arrived, M, N, K, parts, n_tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, WIDEN: tl.constexpr,
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
    acc = product(a, b, row_m, row_n, M, N, K, k_first, k_last, BLOCK_M, BLOCK_N, BLOCK_K, TMA, WIDEN)

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
        constants = {
            "BLOCK_M": config["block_m"],
            "BLOCK_N": config["block_n"],
            "BLOCK_K": config["block_k"],
            "TMA": config["loader"] == "tma",
            "WIDEN": INTERPRETED,
        }
        block_k = config["block_k"]
        types = {"c": "*bf16", "partial": "*fp32", "arrived": "*i32", **dict.fromkeys(constants, "constexpr")}
        for name, rows in (("a", config["block_m"]), ("b", config["block_n"])):
            types[name] = f"tensordesc<bf16[{rows}, {block_k}]>" if constants["TMA"] else "*bf16"
        if function is gemm_persistent:
            types["c"] = f"tensordesc<bf16[{config['block_m']}, {config['block_n']}]>"
        signature = {name: types.get(name, "i32") for name in function.arg_names}
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
        block_m, block_n, block_k = (int(config[name]) for name in ("block_m", "block_n", "block_k"))
        tma, schedule = config["loader"] == "tma", config["schedule"]
        a, b = buffers.inputs
        operands: tuple[Any, Any] = (a, b)
        if tma:
            operands = (
                TensorDescriptor.from_tensor(a, [block_m, block_k]),
                TensorDescriptor.from_tensor(b, [block_n, block_k]),
            )
        constants = (block_m, block_n, block_k, tma, INTERPRETED)
        n_tiles = ceil_div(m, block_m) * ceil_div(n, block_n)
        if schedule == "split_k":
            parts = int(config["split"])
            partial = self._scratch(buffers, "partial", parts * n_tiles * block_m * block_n, torch.float32)
            arrived = self._scratch(buffers, "arrived", n_tiles, torch.int32)
            args = (*operands, buffers.output, partial, arrived, m, n, k, parts, n_tiles, *constants)
            return Launch((n_tiles * parts, 1, 1), args)
        order = (int(config.get("group", 1)), int(config.get("raster", "m") == "n"))
        if schedule == "persistent":
            n_programs = task.device.n_sms * int(config["programs_per_sm"])
            result = TensorDescriptor.from_tensor(buffers.output, [block_m, block_n])
            return Launch((n_programs, 1, 1), (*operands, result, m, n, k, *order, n_tiles, *constants))
        return Launch((n_tiles, 1, 1), (*operands, buffers.output, m, n, k, *order, *constants))

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


PROGRAM = GemmProgram()
