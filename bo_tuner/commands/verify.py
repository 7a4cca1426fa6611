"""Verify."""

from __future__ import annotations

import argparse
from pathlib import Path

from bo_tuner.commands.arguments import add_device, add_kernel, add_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel(parser)
    add_tables(parser)
    add_device(parser, "use only tables of this device (default: of all)")
    parser.add_argument("--out", metavar="FILE", type=Path, help="checkpoint (default: KERNEL.safetensors here)")


def run(arguments: argparse.Namespace) -> int:
    """Train and save."""
    raise NotImplementedError
