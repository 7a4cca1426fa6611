"""How a GEMM tile is laid out; what the space and the jit source both have to know."""

from __future__ import annotations

from typing import Any

import numpy as np


def main_and_strip(size: int) -> tuple[int, int]:
    """The largest power of two in a block size, and the strip that is left: 192 is 128 and 64."""
    main = 1 << (size.bit_length() - 1)
    return main, size - main


def has_strip(sizes: Any) -> Any:
    """Where a block size is no power of two, for an array or one size."""
    return np.bitwise_and(sizes, np.asarray(sizes) - 1) != 0


def swapped(block_m: Any, block_n: Any) -> Any:
    """Whether the rows of the MMA are those of B, for arrays or one tile.

    Hopper's warp-group MMA takes 64 rows at a time and 8 columns or more: a few tokens are its columns, not its rows.
    """
    few = (np.asarray(block_m) % 64 != 0) & (np.asarray(block_n) % 64 == 0)
    return bool(few) if few.ndim == 0 else few


def stored_in_halves(block_m: Any, block_n: Any) -> Any:
    """Whether the persistent schedule stores a tile in two halves, for arrays or one tile."""
    large = np.asarray(block_m) * np.asarray(block_n) >= 2**15
    return bool(large) if large.ndim == 0 else large
