"""bo_tuner tunes Triton GPU kernels in twenty trials with a meta-trained Gaussian process.

Names below are imported when they are first used, so that ``import bo_tuner`` and the command line start at once.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Device": "task",
    "Measurement": "study",
    "Status": "study",
    "Study": "study",
    "Task": "task",
    "Trial": "study",
    "UserError": "errors",
    "choose": "choice",
    "device_named": "task",
    "kernel_names": "kernels",
    "load_kernel": "kernels",
    "tune": "tuner",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bo_tuner' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bo_tuner.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
