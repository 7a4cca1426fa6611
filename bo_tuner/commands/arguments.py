"""Arguments that several commands share, and what turns their text into checked values."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bo_tuner.errors import UserError

if TYPE_CHECKING:
    from bo_tuner.kernels import KernelSpec
    from bo_tuner.task import Device, Task

DEFAULT_DEVICE = "nvidia_h200"
DEFAULT_METHOD = "meta_gp"
DEFAULT_TRIALS = 20


def positive(text: str) -> int:
    """An integer of at least 1."""
    return _integer(text, least=1)


def share(text: str) -> float:
    """An argument that is a number of at least 0 and below 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0 and below 1")
    return value


def natural(text: str) -> int:
    """An integer of at least 0."""
    return _integer(text, least=0)


def _integer(text: str, *, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {least}")
    return value


def add_kernel(parser: argparse.ArgumentParser) -> None:
    """The kernel's name."""
    parser.add_argument("kernel", metavar="KERNEL", help="gemm, attention, or package.module of a spec of your own")


def add_dimensions(parser: argparse.ArgumentParser) -> None:
    """The shape, for example ``M=512 N=4096 K=4096``."""
    parser.add_argument("dimensions", metavar="NAME=SIZE", nargs="*", help="every dimension of the kernel, e.g. M=512")


def add_device(parser: argparse.ArgumentParser, purpose: str) -> None:
    """The device, by name or key."""
    parser.add_argument("--device", metavar="NAME", help=purpose)


def add_tables(parser: argparse.ArgumentParser) -> None:
    """Where recorded tables are."""
    parser.add_argument(
        "--tables",
        metavar="DIR",
        type=Path,
        help="folder of recorded tables (default: data/ here, else data/ of the checkout that bo_tuner runs from)",
    )


def add_search(parser: argparse.ArgumentParser) -> None:
    """The method, its prior and its budget."""
    parser.add_argument("--trials", metavar="N", type=positive, default=DEFAULT_TRIALS, help="budget (default: 20)")
    parser.add_argument("--method", metavar="NAME", default=DEFAULT_METHOD, help="search method (default: meta_gp)")
    parser.add_argument("--prior", metavar="FILE", type=Path, help="meta-trained prior (default: the one shipped)")
    add_compiled(parser)


def add_compiled(parser: argparse.ArgumentParser) -> None:
    """Where facts of the compiler are."""
    purpose = "folder of what the compiler says of the configs (see `bo-tuner compile`), for a prior that uses it"
    parser.add_argument("--compiled", metavar="DIR", type=Path, help=purpose)


def parse_kernel(name: str) -> KernelSpec:
    """The spec of a kernel. A dotted name may be a module of the current folder, as with ``python -m``.

    Raises:
        UserError: there is no such kernel.
    """
    from bo_tuner.kernels import load_kernel

    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"kernel: {name!r} is neither a kernel's name nor package.module of a spec")
    if "." in name and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return load_kernel(name)


def parse_dimensions(words: Sequence[str], spec: KernelSpec) -> dict[str, int]:
    """``["M=512", …]`` as a mapping; whether the dimensions are the kernel's is for ``KernelSpec.task`` to say.

    Raises:
        UserError: a word is not of the form NAME=SIZE, a size is not an integer, or a name comes twice.
    """
    shape: dict[str, int] = {}
    for word in words:
        name, equals, size = word.partition("=")
        if not (name and equals):
            raise UserError(f"dimension: {word!r} is not of the form NAME=SIZE; {spec.name} has {_names(spec)}")
        if name in shape:
            raise UserError(f"{name}: is given twice")
        try:
            shape[name] = int(size)
        except ValueError:
            raise UserError(f"{name}: {size!r} is not an integer of at least 1") from None
    return shape


def parse_task(arguments: argparse.Namespace, device: Device | None = None) -> tuple[KernelSpec, Task]:
    """The kernel's spec and the checked task that the command line names."""
    spec = parse_kernel(arguments.kernel)
    shape = parse_dimensions(arguments.dimensions, spec)
    return spec, spec.task(shape, device or parse_device(arguments))


def parse_device(arguments: argparse.Namespace) -> Device:
    """The named device, or the one that recorded the shipped tables."""
    from bo_tuner.task import device_named

    return device_named(arguments.device or DEFAULT_DEVICE)


def check_method(name: str) -> None:
    """Refuse an unknown search method.

    Raises:
        UserError: it is unknown.
    """
    from bo_tuner.searchers import method_names

    if name not in method_names():
        raise UserError(f"--method: {name!r} is not one of {', '.join(method_names())}")


def check_output(path: Path | None) -> None:
    """Refuse a file that cannot be written, before the work that would fill it.

    Raises:
        UserError: its folder does not exist, or it is a folder itself.
    """
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise UserError(f"file: {path} cannot be written, its folder does not exist or it is a folder itself")


def _names(spec: KernelSpec) -> str:
    return ", ".join(spec.shape_keys)
