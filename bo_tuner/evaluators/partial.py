"""A part of a GPU as a device of its own: a CUDA stream that runs on some multiprocessors only.

Green contexts of the CUDA driver API (12.4 and later); no setting of the card is changed. Needs ``cuda-bindings``.
"""

from __future__ import annotations

from typing import Any

import torch

from bo_tuner.errors import UserError

_kept: list[Any] = []


def stream_on_sms(n_sms: int) -> torch.cuda.ExternalStream:
    """A stream whose kernels run on ``n_sms`` multiprocessors of the current device.

    Raises:
        UserError: the driver cannot make a part of exactly this size.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        raise UserError("sms: a part of a GPU needs the package cuda-bindings") from None
    torch.cuda.synchronize()  # makes the primary context current
    device = _checked(driver.cuDeviceGet(torch.cuda.current_device()))
    whole = _checked(driver.cuDeviceGetDevResource(device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    parts, _, _ = _checked(driver.cuDevSmResourceSplitByCount(1, whole, 0, n_sms))
    if parts[0].sm.smCount != n_sms:
        raise UserError(f"sms: {n_sms} cannot be split off; the nearest this device offers is {parts[0].sm.smCount}")
    description = _checked(driver.cuDevResourceGenerateDesc([parts[0]], 1))
    flag = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    context = _checked(driver.cuGreenCtxCreate(description, device, flag))
    non_blocking = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    stream = _checked(driver.cuGreenCtxStreamCreate(context, non_blocking, 0))
    _kept.append(context)  # the stream lives as long as its context
    return torch.cuda.ExternalStream(int(stream))


def _checked(result: tuple[Any, ...]) -> Any:
    """The values of a driver call, or an error that names its code."""
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(f"CUDA driver: {code.name}")
    return values[0] if len(values) == 1 else tuple(values)
