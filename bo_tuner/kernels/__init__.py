"""The kernels that can be tuned. A spec module in this folder, or one that a user names, is found without a list."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec

__all__ = ["KernelSpec", "kernel_names", "load_kernel", "module_of"]

_INFRASTRUCTURE = {"spec", "program", "occupancy", "language_models", "gemm_tiles", "attention_tiles", "triton"}
_loaded: dict[str, KernelSpec] = {}


def kernel_names() -> list[str]:
    """Names of the built-in kernels and of those loaded so far."""
    built_in = {module.name for module in pkgutil.iter_modules(__path__)} - _INFRASTRUCTURE
    return sorted(built_in | set(_loaded))


def load_kernel(name: str) -> KernelSpec:
    """The spec of a kernel: a built-in name, or ``package.module`` of a module that defines one ``KernelSpec``.

    Raises:
        UserError: there is no such kernel.
    """
    if name in _loaded:
        return _loaded[name]
    module_name = name if "." in name else f"{__name__}.{name}"
    if "." not in name and name not in kernel_names():
        raise UserError(f"kernel: {name!r} is not one of {', '.join(kernel_names())} (or package.module of a spec)")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(f"kernel: {name!r} cannot be imported: {error}") from None
    specs = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, KernelSpec)
        and value.__module__ == module_name
        and not inspect.isabstract(value)
    ]
    if len(specs) != 1:
        raise UserError(f"kernel: module {module_name} must define one KernelSpec, it has {len(specs)}")
    spec = specs[0]()
    _loaded[name] = _loaded[spec.name] = spec
    return spec


def module_of(name: str) -> str:
    """The module of a loaded kernel: what ``load_kernel`` takes in another process, where only built-ins are known."""
    return type(load_kernel(name)).__module__
