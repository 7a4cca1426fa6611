"""The ``bo-tuner`` command. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from bo_tuner import __version__
from bo_tuner.commands import (
    check,
    collect,
    compile,
    demo,
    explain,
    facts,
    meta_train,
    noise,
    shapes,
    space,
    tune,
    verify,
)
from bo_tuner.errors import UserError

COMMANDS = (tune, explain, space, verify, meta_train, collect, check, compile, facts, noise, shapes, demo)

EPILOG = """\
examples:
  bo-tuner tune gemm M=2048 N=6144 K=4096            tune on this machine's GPU
  bo-tuner tune gemm M=2048 N=6144 K=4096 --replay   the same from recorded tables, without a GPU
  bo-tuner verify attention                         the 20-trial protocol over all validation shapes
"""


class _Parser(argparse.ArgumentParser):
    """Reports bad usage as a ``UserError``: one line, as for any other bad input."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message.removeprefix("argument ").replace("\n", " "))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 when done, 2 for bad input (one line on stderr), 130 when interrupted.
    """
    # Twenty rows of a Gaussian process are no work for two threads, and on a busy machine they wait for each other: a
    # replay took seven times longer. Whoever wants more threads sets the variable.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        arguments = _parse(argv)
        return int(arguments.run(arguments))
    except UserError as error:
        print(f"bo-tuner: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bo-tuner: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, for example `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    arguments, rest = _parser().parse_known_args(argv)
    if hasattr(arguments, "dimensions"):  # argparse loses those that follow an option
        arguments.dimensions += [word for word in rest if not word.startswith("-")]
        rest = [word for word in rest if word.startswith("-")]
    if rest:
        raise UserError(f"{rest[0]}: is no argument of bo-tuner {arguments.command}")
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="bo-tuner",
        description="Tune Triton GPU kernels in twenty trials with a meta-trained Gaussian process.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2].replace("_", "-")
        summary = (command.__doc__ or "").partition("\n")[0].rstrip(".")
        subparser = commands.add_parser(name, help=summary[:1].lower() + summary[1:], description=command.__doc__)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
