"""GEMM schedules that are not in the search space yet, against the recorded best config and the library.

    python -m experiments.gemm_variants            needs a GPU; docs/gemm_variants.md has what it said on an H200

Three ways to fill a chip that 1.1 waves of large tiles leave half idle:

* ``stream_k``: the K blocks of the tiles that do not fill a wave are shared out evenly over all programs (Osama et al.
  2023, "Stream-K"); a tile that several programs worked on is added up by the last to arrive.
* ``tall`` and ``wide``: tiles of 192 or 320 rows, or of 96, 160 or 192 columns, which powers of two cannot give, as two
  accumulators that share one operand.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from bo_tuner.kernels import load_kernel
from bo_tuner.kernels.program import Buffers, Build, Launch
from bo_tuner.kernels.spec import ceil_div
from bo_tuner.kernels.triton.gemm import INTERPRETED, GemmProgram, product, tile_position
from bo_tuner.space import Config
from bo_tuner.task import Task

_RUN_TIME = ["M", "group", "along_n", "n_whole", "n_tiles"]


@triton.jit
def two_products(
    a, a2, b, b2, row_m, row_n, n_blocks,
    BLOCK_M: tl.constexpr, EXTRA_M: tl.constexpr, BLOCK_N: tl.constexpr, EXTRA_N: tl.constexpr,
    BLOCK_K: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """The tile and its extension: more rows if EXTRA_M is not 0, else more columns."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    extra = tl.zeros((EXTRA_M if EXTRA_M else BLOCK_M, BLOCK_N if EXTRA_M else EXTRA_N), dtype=tl.float32)
    for block in range(0, n_blocks):
        x = a.load([row_m, block * BLOCK_K])
        y = b.load([row_n, block * BLOCK_K])
        if EXTRA_M:
            z = a2.load([row_m + BLOCK_M, block * BLOCK_K])
        else:
            z = b2.load([row_n + BLOCK_N, block * BLOCK_K])
        if WIDEN:
            x, y, z = x.to(tl.float32), y.to(tl.float32), z.to(tl.float32)
        acc = tl.dot(x, y.T, acc)
        if EXTRA_M:
            extra = tl.dot(z, y.T, extra)
        else:
            extra = tl.dot(x, z.T, extra)
    return acc, extra


@triton.jit(do_not_specialize=_RUN_TIME)
def gemm_extended(
    a, a2, b, b2, c, c2, M, N, K, group, along_n, n_tiles,
    BLOCK_M: tl.constexpr, EXTRA_M: tl.constexpr, BLOCK_N: tl.constexpr, EXTRA_N: tl.constexpr,
    BLOCK_K: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Tiles of (BLOCK_M + EXTRA_M) × (BLOCK_N + EXTRA_N), one of the extras being 0; one program a tile."""
    n_m, n_n = tl.cdiv(M, BLOCK_M + EXTRA_M), tl.cdiv(N, BLOCK_N + EXTRA_N)
    pid_m, pid_n = tile_position(tl.program_id(0), n_m, n_n, group, along_n)
    row_m, row_n = pid_m * (BLOCK_M + EXTRA_M), pid_n * (BLOCK_N + EXTRA_N)
    acc, extra = two_products(
        a, a2, b, b2, row_m, row_n, tl.cdiv(K, BLOCK_K), BLOCK_M, EXTRA_M, BLOCK_N, EXTRA_N, BLOCK_K, WIDEN
    )
    c.store([row_m, row_n], acc.to(tl.bfloat16))
    if EXTRA_M:
        c2.store([row_m + BLOCK_M, row_n], extra.to(tl.bfloat16))
    else:
        c2.store([row_m, row_n + BLOCK_N], extra.to(tl.bfloat16))


@triton.jit(do_not_specialize=_RUN_TIME)
def gemm_stream_k(
    a, b, c, partial, arrived, M, N, K, group, along_n, n_whole, n_tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Tiles from ``n_whole`` on by K blocks over all programs; those before it one a program and round.

    A program leaves at most two partial tiles: slot 0 the end of one, slot 1 the beginning of another.
    """
    pid, n_programs = tl.program_id(0), tl.num_programs(0)
    n_m, n_n, n_blocks = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), tl.cdiv(K, BLOCK_K)
    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = (n_tiles - n_whole).to(tl.int64) * n_blocks
    first, last = (pid * total // n_programs).to(tl.int32), ((pid + 1) * total // n_programs).to(tl.int32)
    while first < last:
        rest = first // n_blocks
        k_first = first - rest * n_blocks
        k_last = tl.minimum(n_blocks, k_first + last - first)
        pid_m, pid_n = tile_position(n_whole + rest, n_m, n_n, group, along_n)
        row_m, row_n = pid_m * BLOCK_M, pid_n * BLOCK_N
        acc = product(a, b, row_m, row_n, M, N, K, k_first, k_last, BLOCK_M, BLOCK_N, BLOCK_K, TMA, WIDEN)
        if k_last - k_first == n_blocks:
            c.store([row_m, row_n], acc.to(tl.bfloat16))
        else:
            slot = (pid * 2 + (k_first == 0).to(tl.int32)).to(tl.int64)
            tl.store(partial + slot * (BLOCK_M * BLOCK_N) + inside, acc)
            tl.debug_barrier()
            begin = (rest * n_blocks).to(tl.int64)
            p_first = (((begin + 1) * n_programs - 1) // total).to(tl.int32)
            p_last = (((begin + n_blocks) * n_programs - 1) // total).to(tl.int32)
            if tl.atomic_add(arrived + rest, 1, sem="acq_rel") == p_last - p_first:
                tile_sum = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
                for p in range(p_first, p_last + 1):
                    begins_here = (p * total // n_programs <= begin).to(tl.int32)
                    at = (p * 2 + begins_here).to(tl.int64) * (BLOCK_M * BLOCK_N)
                    tile_sum += tl.load(partial + at + inside, cache_modifier=".cg")
                c.store([row_m, row_n], tile_sum.to(tl.bfloat16))
                tl.store(arrived + rest, 0)
        first += k_last - k_first
    for tile in tl.range(pid, n_whole, n_programs, flatten=True):
        pid_m, pid_n = tile_position(tile, n_m, n_n, group, along_n)
        row_m, row_n = pid_m * BLOCK_M, pid_n * BLOCK_N
        acc = product(a, b, row_m, row_n, M, N, K, 0, n_blocks, BLOCK_M, BLOCK_N, BLOCK_K, TMA, WIDEN)
        c.store([row_m, row_n], acc.to(tl.bfloat16))


class VariantProgram(GemmProgram):
    """The GEMM's program with ``schedule`` also ``extended`` (extra_m or extra_n) and ``stream_k`` (streamed waves)."""

    def build(self, config: Config, task: Task) -> Build:
        if config["schedule"] not in ("extended", "stream_k"):
            return super().build(config, task)
        extended = config["schedule"] == "extended"
        constants = self._constants(config)
        k = constants["BLOCK_K"]
        rows, columns = constants["BLOCK_M"], constants["BLOCK_N"]
        types: dict[str, str] = {"partial": "*fp32", "arrived": "*i32", **dict.fromkeys(constants, "constexpr")}
        blocks = {"a": (rows, k), "b": (columns, k), "c": (rows, columns)}
        if extended:
            more_rows, more_columns = constants["EXTRA_M"] or rows, constants["EXTRA_N"] or columns
            blocks |= {"a2": (more_rows, k), "b2": (more_columns, k), "c2": (more_rows, more_columns)}
        types |= {name: f"tensordesc<bf16[{one}, {two}]>" for name, (one, two) in blocks.items()}
        function = gemm_extended if extended else gemm_stream_k
        signature = {name: types.get(name, "i32") for name in function.arg_names}
        pointers = tuple(name for name, kind in signature.items() if kind.startswith("*"))
        return Build(
            function, signature, constants, (*pointers, "N", "K"), int(config["num_warps"]), int(config["num_stages"])
        )

    @staticmethod
    def _constants(config: Config) -> dict[str, Any]:
        block = {name: int(config[name.lower()]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")}
        if config["schedule"] == "stream_k":
            return {**block, "TMA": True, "WIDEN": INTERPRETED}
        extra = {name: int(config.get(name.lower(), 0)) for name in ("EXTRA_M", "EXTRA_N")}
        return {
            "BLOCK_M": block["BLOCK_M"],
            "EXTRA_M": extra["EXTRA_M"],
            "BLOCK_N": block["BLOCK_N"],
            "EXTRA_N": extra["EXTRA_N"],
            "BLOCK_K": block["BLOCK_K"],
            "WIDEN": INTERPRETED,
        }

    def launch(self, config: Config, task: Task, buffers: Buffers) -> Launch:
        if config["schedule"] not in ("extended", "stream_k"):
            return super().launch(config, task, buffers)
        m, n, k = (task.shape[key] for key in "MNK")
        constants = self._constants(config)
        rows, columns, depth = constants["BLOCK_M"], constants["BLOCK_N"], constants["BLOCK_K"]
        (a, b), out, described = buffers.inputs, buffers.output, TensorDescriptor.from_tensor
        order = (int(config.get("group", 1)), int(config.get("raster", "m") == "n"))
        tile = (described(a, [rows, depth]), described(b, [columns, depth]), described(out, [rows, columns]))
        if config["schedule"] == "extended":
            more_rows, more_columns = constants["EXTRA_M"] or rows, constants["EXTRA_N"] or columns
            n_tiles = ceil_div(m, rows + constants["EXTRA_M"]) * ceil_div(n, columns + constants["EXTRA_N"])
            extras = (described(a, [more_rows, depth]), described(b, [more_columns, depth]))
            operands = (tile[0], extras[0], tile[1], extras[1], tile[2], described(out, [more_rows, more_columns]))
            return Launch((n_tiles, 1, 1), (*operands, m, n, k, *order, n_tiles, *constants.values()))
        n_programs, n_tiles = task.device.n_sms, ceil_div(m, rows) * ceil_div(n, columns)
        n_whole = max(0, n_tiles // n_programs + 1 - int(config["streamed"])) * n_programs
        partial = self._scratch(buffers, "partial", 2 * n_programs * rows * columns, torch.float32)
        arrived = self._scratch(buffers, "arrived", n_tiles, torch.int32)
        args = (*tile, partial, arrived, m, n, k, *order, min(n_whole, n_tiles), n_tiles, *constants.values())
        return Launch((n_programs, 1, 1), args)


PROGRAM = VariantProgram()

#: Shapes on which the recorded best config is furthest behind the library.
SHAPES = (
    (135, 16032, 4096), (152, 37984, 1536), (171, 128256, 4096), (184, 16384, 53248), (256, 4608, 4608),
    (256, 18432, 7168), (320, 16000, 5120), (777, 8192, 8192), (1024, 2304, 3584), (2259, 4000, 5120),
    (4096, 640, 3072), (4096, 2304, 3584),
)  # fmt: skip
_TILES = {  # schedule → block_m, extra_m, block_n, extra_n, block_k, num_stages, num_warps
    "extended": (
        (128, 64, 128, 0, 64, 4, 4), (128, 64, 128, 0, 64, 4, 8), (128, 64, 64, 0, 64, 4, 4),
        (128, 0, 128, 64, 64, 4, 4), (64, 0, 128, 64, 64, 5, 4), (64, 0, 128, 32, 64, 5, 4),
    ),
    "stream_k": ((128, 0, 256, 0, 64, 3, 8), (128, 0, 128, 0, 64, 5, 8), (64, 0, 256, 0, 64, 4, 4)),
}  # fmt: skip


def configs() -> Iterator[dict[str, Any]]:
    """What is compared."""
    for schedule, tiles in _TILES.items():
        for block_m, extra_m, block_n, extra_n, block_k, stages, warps in tiles:
            for raster, group in (("m", 1), ("n", 1), ("n", 8)):
                yield {
                    "schedule": schedule, "block_m": block_m, "extra_m": extra_m, "block_n": block_n,
                    "extra_n": extra_n, "block_k": block_k, "num_stages": stages, "num_warps": warps,
                    "loader": "tma", "raster": raster, "group": group, "streamed": 1,
                }  # fmt: skip


def main() -> None:
    """Time every variant, the prior's pick from the search space, and the library, interleaved, on each shape."""
    from bo_tuner.evaluators.drift import read_rounds
    from bo_tuner.evaluators.session import GpuSession
    from bo_tuner.pretrained import load_prior

    spec, session = load_kernel("gemm"), GpuSession()
    prior = load_prior(spec)
    print("shape, library us, then library / time of: the space (prior's pick), extended, stream_k")
    for shape in SHAPES:
        task = spec.task(dict(zip("MNK", shape, strict=True)), session.device)
        session.open(task, program=PROGRAM)
        pool = spec.pool(task)
        entrants: list[dict[str, Any]] = [pool.config(int(prior.prior_mean(pool).argmax())), *configs()]
        loaded = [session.load(config) for config in entrants]
        _, errors = session.check_and_read(loaded)
        assert max(errors) < 1e-2, entrants[errors.index(max(errors))]
        loaded += session.baselines().values()
        medians = [statistics.median(readings) for readings in read_rounds(session.read, loaded, 15)]
        library = min(medians[len(entrants) :])
        best = [
            min(us for us, one in zip(medians, entrants[1:], strict=False) if one["schedule"] == name)
            for name in ("extended", "stream_k")
        ]
        print(f"{task.shape_key}, {library:.1f}, " + ", ".join(f"{library / us:.3f}" for us in (medians[0], *best)))


if __name__ == "__main__":
    main()
