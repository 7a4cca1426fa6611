"""In which order tiles are visited: written down a tile at a time, and seen in Triton's interpreter.

``python -m tests.unit.kernels.visiting KERNEL CASES`` launches the first program of each [shape, config], then the first
two, and so on, and prints where each further one begins to write and how many elements it adds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tests.interpreted import Case, in_interpreter


def gemm_order(n_m: int, n_n: int, raster: str, group: int) -> list[tuple[int, int]]:
    """(row, column) of every tile: bands of rows (raster m) or columns, each walked across the other dimension."""
    if raster == "n":
        return [(row, column) for column, row in gemm_order(n_n, n_m, "m", group)]
    return [(row, column) for band in _bands(n_m, group) for column in range(n_n) for row in band]


def attention_order(n_packs: int, n_tiles: int, order: str, band: int) -> list[tuple[int, int]]:
    """(pack of heads, tile) of every block: bands of packs, each walked from the first tile to the last or back."""
    tiles = range(n_tiles)[:: 1 if order == "ascending" else -1]
    return [(pack, tile) for packs in _bands(n_packs, band) for tile in tiles for pack in packs]


def _bands(n: int, width: int) -> Iterator[range]:
    return (range(first, min(first + width, n)) for first in range(0, n, width))


def first_written(kernel: str, cases: Sequence[Case]) -> list[list[Any]]:
    """Of each case, for program after program, [first element that it writes, how many it writes]."""
    seen: list[list[Any]] = in_interpreter("-m", "tests.unit.kernels.visiting", kernel, json.dumps(cases))
    return seen


def _main(kernel: str, cases: str) -> None:
    from bo_tuner.kernels import load_kernel
    from bo_tuner.task import device_named

    spec, device = load_kernel(kernel), device_named("nvidia_h200")
    seen = []
    for shape, config in json.loads(cases):
        task = spec.task(shape, device)
        buffers = spec.program.buffers(task, 0, "cpu")
        build, launch = spec.program.build(config, task), spec.program.launch(config, task, buffers)
        empty, writes = buffers.output.isnan() | True, []
        for n_programs in range(1, launch.grid[0] + 1):
            buffers.output.fill_(float("nan"))
            build.function[n_programs, 1, 1](*launch.args, num_warps=build.num_warps, num_stages=build.num_stages)
            new = empty & ~buffers.output.isnan()
            empty &= buffers.output.isnan()
            writes.append([new.nonzero()[:1].flatten().tolist(), int(new.sum())])
        assert not empty.any()
        seen.append(writes)
    print(json.dumps(seen))


if __name__ == "__main__":
    _main(*sys.argv[1:])
