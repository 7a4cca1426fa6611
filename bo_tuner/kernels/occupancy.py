"""How many blocks of a kernel fit one multiprocessor, and how evenly a grid fills the chip.

Facts as in the CUDA programming guide, appendix on compute capabilities: shared memory, registers and threads of a
multiprocessor are shared by its resident blocks; at most 32 blocks are resident, and every block reserves 1 KiB.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bo_tuner.task import Device

_MAX_BLOCKS = 32
_RESERVED_BYTES = 1024
_MAX_REGISTERS = 255


def blocks_per_sm(
    device: Device, shared_bytes: NDArray[Any], num_warps: NDArray[Any], registers: NDArray[Any]
) -> NDArray[np.float64]:
    """Resident blocks a multiprocessor, at least 1.

    Args:
        device: the device.
        shared_bytes: shared memory a block.
        num_warps: warps a block.
        registers: an estimate of registers a thread.
    """
    threads = 32 * num_warps.astype(np.float64)
    by_shared = device.shared_per_sm_bytes // (shared_bytes + _RESERVED_BYTES)
    by_registers = device.registers_per_sm // (np.clip(registers, 32, _MAX_REGISTERS) * threads)
    by_threads = device.threads_per_sm // threads
    return np.clip(np.minimum.reduce([by_shared, by_registers, by_threads]), 1, _MAX_BLOCKS).astype(np.float64)


def waves(n_blocks: NDArray[Any], device: Device, per_sm: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Grid over what the chip holds at once, and the share of the slots that the last wave leaves in use (0 to 1]."""
    full = n_blocks / (device.n_sms * per_sm)
    return full, full / np.ceil(full)
