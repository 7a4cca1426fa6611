"""What one tuning run is about: a kernel, a shape, a dtype and a device."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from types import MappingProxyType
from typing import Any

from bo_tuner.errors import UserError


def file_key(text: str) -> str:
    """Turn a name into a stable part of a file name: lower case, ``[a-z0-9_]`` only."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


@dataclass(frozen=True)
class Device:
    """One GPU, or a stated part of one, with the facts that validity and features need.

    Sizes are bytes; ``bandwidth_gb_s`` (10^9 bytes a second) and ``peak_bf16_tflops`` are measured where the
    data sheet ``devices.yaml`` says so, else the vendor's.
    """

    name: str
    capability: tuple[int, int]
    n_sms: int
    shared_per_block_bytes: int
    shared_per_sm_bytes: int
    registers_per_sm: int
    threads_per_sm: int
    l2_bytes: int
    memory_bytes: int
    bandwidth_gb_s: float
    peak_bf16_tflops: float

    @property
    def key(self) -> str:
        """File-safe name, for example ``nvidia_h200_72_sms``."""
        return file_key(self.name)

    @property
    def ridge(self) -> float:
        """Arithmetic intensity (flop a byte) above which the device is bound by arithmetic."""
        return self.peak_bf16_tflops * 1e3 / self.bandwidth_gb_s

    def with_sms(self, n_sms: int) -> Device:
        """The part of this device that has ``n_sms`` multiprocessors; memory stays whole."""
        if not 1 <= n_sms <= self.n_sms:
            raise UserError(f"sms: {n_sms} is not between 1 and the device's {self.n_sms}")
        if n_sms == self.n_sms:
            return self
        return replace(
            self,
            name=f"{self.name}, {n_sms} SMs",
            n_sms=n_sms,
            peak_bf16_tflops=self.peak_bf16_tflops * n_sms / self.n_sms,
        )


@functools.cache
def known_devices() -> Mapping[str, Device]:
    """The devices of the data sheet ``bo_tuner/devices.yaml``, by key."""
    import yaml

    text = resources.files("bo_tuner").joinpath("devices.yaml").read_text(encoding="utf-8")
    devices = {}
    for facts in yaml.safe_load(text)["devices"]:
        facts = {key: value for key, value in facts.items() if key != "source"}
        device = Device(**{**facts, "capability": tuple(facts["capability"])})
        devices[device.key] = device
    return MappingProxyType(devices)


def device_named(name: str) -> Device:
    """Look a device up by name or key; ``nvidia_h200_72_sms`` is 72 SMs of ``nvidia_h200``.

    Raises:
        UserError: the data sheet has no such device.
    """
    devices, key = known_devices(), file_key(name)
    if key in devices:
        return devices[key]
    part = re.fullmatch(r"(.+)_(\d+)_sms", key)
    if part and part[1] in devices:
        return devices[part[1]].with_sms(int(part[2]))
    raise UserError(f"device: {name!r} is not one of {', '.join(sorted(devices))}")


@dataclass(frozen=True, eq=False)
class Task:
    """A kernel, a shape, a dtype and a device. Two tasks are equal when their keys are."""

    kernel: str
    shape: Mapping[str, int]
    device: Device
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", MappingProxyType(dict(self.shape)))

    @property
    def shape_key(self) -> str:
        """Stable text of the shape, for example ``M4096-N4096-K512``."""
        return "-".join(f"{key}{value}" for key, value in self.shape.items())

    @property
    def key(self) -> str:
        """Stable, file-safe name of the task."""
        return f"{self.kernel}-{self.shape_key}-{self.dtype}-{self.device.key}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Task) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> Any:  # a mapping proxy cannot be pickled to a worker process
        return (Task, (self.kernel, dict(self.shape), self.device, self.dtype))
