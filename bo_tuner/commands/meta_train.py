"""Meta-train the prior of a kernel from recorded tables."""

from __future__ import annotations

import argparse
from pathlib import Path

from bo_tuner.commands.arguments import add_compiled, add_kernel, add_tables, check_output, parse_kernel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel(parser)
    add_tables(parser)
    parser.add_argument("--split", metavar="NAME", default="train", help="which tables (default: train)")
    parser.add_argument("--device", metavar="NAME", help="only tables of this device (default: of all)")
    add_compiled(parser)
    parser.add_argument("--out", metavar="FILE", type=Path, help="the prior (default: KERNEL.safetensors here)")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(arguments: argparse.Namespace) -> int:
    """Read the tables, train and save."""
    from bo_tuner.calibration import calibrate_distance
    from bo_tuner.commands.locate import compiled_facts, tables_root
    from bo_tuner.commands.screen import Shares, console
    from bo_tuner.storage.tables import find_tables, read_tables
    from bo_tuner.surrogates.meta_gp import MetaGP

    spec = parse_kernel(arguments.kernel)
    out = arguments.out or Path(f"{spec.name}.safetensors")
    check_output(out)
    compiled = compiled_facts(arguments.compiled, spec)
    paths = find_tables(tables_root(arguments.tables), spec.name, arguments.device, arguments.split)
    tables = [table for path in paths for table in read_tables(path, spec)]
    screen = console()
    devices = sorted({table.task.device.key for table in tables})
    n_configs = sum(map(len, tables))
    screen.print(f"{len(tables)} shapes, {n_configs:,} timed configs, of {', '.join(devices)}", highlight=False)

    with Shares(quiet=arguments.quiet) as progress:
        surrogate = MetaGP(compiled=compiled).meta_fit(tables, spec, progress.hear)
        calibrate_distance(surrogate, tables, progress=progress.hear)
    surrogate.save(out)
    screen.print(f"wrote {out}", highlight=False, soft_wrap=True)
    return 0
