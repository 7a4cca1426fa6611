"""Record tables on this machine's GPUs: time every valid config of sampled shapes; a killed run resumes."""

from __future__ import annotations

import argparse
from pathlib import Path

from bo_tuner.commands.arguments import add_kernel, natural, parse_kernel, positive
from bo_tuner.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel(parser)
    parser.add_argument(
        "--sample",
        metavar="N",
        type=positive,
        action="append",
        required=True,
        help="how many shapes; with --seed again for several draws, which then take turns",
    )
    parser.add_argument(
        "--seed", metavar="S", type=natural, action="append", required=True, help="of the shapes: 1 train, 2 validation"
    )
    parser.add_argument("--sms", metavar="N", type=positive, help="use only so many multiprocessors of each GPU")
    parser.add_argument("--gpus", metavar="N", type=positive, default=1, help="time on so many equal GPUs (default: 1)")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("data"), help="folder (default: data)")


def run(arguments: argparse.Namespace) -> int:
    """Hand over to the recorder."""
    from bo_tuner.collect import Draw, collect
    from bo_tuner.commands.screen import StageListener, console

    spec = parse_kernel(arguments.kernel)
    samples, seeds = arguments.sample, arguments.seed
    if len(samples) != len(seeds):
        raise UserError(f"--seed: is given {len(seeds)} times, --sample {len(samples)} times; every draw needs both")
    if len(set(seeds)) < len(seeds):
        raise UserError("--seed: two draws of one seed are the same shapes")
    draws = [Draw(n_shapes, seed) for n_shapes, seed in zip(samples, seeds, strict=True)]
    with StageListener() as listener:
        paths = collect(spec, draws, arguments.out, n_sms=arguments.sms, listener=listener, n_gpus=arguments.gpus)
    for path in paths:
        console().print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0
