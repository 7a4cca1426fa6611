"""Print shapes drawn from a kernel's published distribution, one line each, as `tune` takes them."""

from __future__ import annotations

import argparse

from bo_tuner.commands.arguments import add_kernel, natural, parse_kernel, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel(parser)
    parser.add_argument("--sample", metavar="N", type=positive, default=10, help="how many (default: 10)")
    parser.add_argument(
        "--seed",
        metavar="S",
        type=natural,
        default=0,
        help="1 gives the train shapes, 2 validation; any other seed shares no shape with them (default: 0)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Draw and print."""
    spec = parse_kernel(arguments.kernel)
    for shape in spec.sample_shapes(arguments.sample, arguments.seed):
        print(" ".join(f"{name}={size}" for name, size in shape.items()))
    return 0
