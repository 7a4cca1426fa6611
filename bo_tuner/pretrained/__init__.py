"""The trained priors that come with the package, one file a kernel, and how to load one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from bo_tuner.surrogates.meta_gp import MetaGP


def prior_path(spec: KernelSpec) -> Path:
    """Where the shipped prior of a kernel is, if there is one."""
    return Path(__file__).parent / f"{spec.name}.safetensors"


def load_prior(spec: KernelSpec, path: Path | None = None, **options: Any) -> MetaGP:
    """The shipped prior of a kernel, or the one in a file.

    Args:
        spec: the kernel.
        path: a file that ``bo-tuner meta-train`` wrote; None for the shipped one.
        options: of :class:`~bo_tuner.surrogates.meta_gp.MetaGP`.

    Raises:
        UserError: there is no such file, or it does not fit the kernel.
    """
    found = path or prior_path(spec)
    if not found.is_file():
        wanted = f"{path} is no file" if path else f"none is shipped for {spec.name}"
        raise UserError(f"prior: {wanted}; train one with: bo-tuner meta-train {_word(spec)}")
    from bo_tuner.surrogates.meta_gp import MetaGP

    return MetaGP.load(found, spec, **options)


def _word(spec: KernelSpec) -> str:
    """How the command line names a kernel: a built-in one by its name, any other by its module."""
    module = type(spec).__module__
    return spec.name if module.startswith("bo_tuner.") else module
