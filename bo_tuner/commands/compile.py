"""Compile every config of a shape, without a GPU, and keep what each needs: registers, stack and shared memory."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bo_tuner.commands.arguments import add_device, add_dimensions, add_kernel, add_tables, parse_kernel, parse_task
from bo_tuner.errors import UserError

if TYPE_CHECKING:
    from bo_tuner.storage.compiled import CompiledFacts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel(parser)
    add_dimensions(parser)
    add_device(parser, "device to compile for, which need not be here (default: nvidia_h200)")
    parser.add_argument("--recorded", action="store_true", help="take what the train tables say, compile nothing")
    add_tables(parser)
    out = Path("outputs", "compiled")
    parser.add_argument("--out", metavar="DIR", type=Path, default=out, help=f"folder (default: {out})")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(arguments: argparse.Namespace) -> int:
    """Extend the folder; what was compiled before is not compiled again."""
    from bo_tuner.commands.screen import console
    from bo_tuner.storage.compiled import CompiledFacts

    spec = parse_kernel(arguments.kernel)
    if arguments.out.exists() and not arguments.out.is_dir():
        raise UserError(f"--out: {arguments.out} is no folder")
    facts = CompiledFacts(arguments.out, spec)
    if arguments.recorded and arguments.dimensions:
        raise UserError(f"--recorded: takes all recorded shapes, so {arguments.dimensions[0]!r} has no place")
    told = _recorded(arguments, facts) if arguments.recorded else _compiled(arguments, facts)
    console().print(f"{told}; facts are in {arguments.out}", highlight=False, soft_wrap=True)
    return 0


def _recorded(arguments: argparse.Namespace, facts: CompiledFacts) -> str:
    from bo_tuner.commands.locate import tables_root
    from bo_tuner.storage.tables import find_tables

    paths = find_tables(tables_root(arguments.tables), facts.spec.name, arguments.device)
    n_new = sum(facts.add_recorded(path) for path in paths)
    return f"{n_new} builds of {len(paths)} tables"


def _compiled(arguments: argparse.Namespace, facts: CompiledFacts) -> str:
    from bo_tuner.commands.screen import Bar
    from bo_tuner.evaluators.compiling import compile_missing, triton_version

    task = parse_task(arguments)[1]
    n_missing = len(facts.missing(task, triton_version()))
    with Bar("compile", n_missing, quiet=arguments.quiet, n_lines=20) as bar:
        n_refused = compile_missing(facts, task, lambda result: bar.step(f"{result.compile_s:.1f} s"))
    return f"{n_missing} builds compiled by Triton {triton_version()}, {n_refused} of them refused"
