"""Tensor descriptors for Hopper's copy engine, made once a task and block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from bo_tuner.kernels.program import Buffers


def described(buffers: Buffers, tensor: torch.Tensor, block: Sequence[int]) -> Any:
    """The descriptor of a contiguous tensor for loads or stores of ``block`` elements; kept with the buffers."""
    key = (tensor.data_ptr(), tensor.dim(), *block)
    if key not in buffers.descriptors:
        buffers.descriptors[key] = TensorDescriptor.from_tensor(tensor, list(block))
    return buffers.descriptors[key]
