"""How attention is compiled; what the space and the jit source both have to know."""

from __future__ import annotations

#: Warps a block: one warp group. Eight were never within 2 % of the best on an H200.
NUM_WARPS = 4
#: Registers a thread that the hardware allows: no cap at all.
NO_CAP = 255
