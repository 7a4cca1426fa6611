"""Check recorded tables: columns, every valid config once, times finite, best re-timed, checksums; one line a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from bo_tuner.commands.arguments import parse_kernel
from bo_tuner.commands.locate import table_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="table file, or folder of table files")
    parser.add_argument(
        "--kernel", metavar="NAME", help="package.module of the spec, for a kernel that is not built in"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check every file; the first fault ends with exit code 2."""
    from bo_tuner.storage.checksums import CHECKSUMS, check_sums
    from bo_tuner.storage.tables import check_tables, read_metadata

    given = parse_kernel(arguments.kernel) if arguments.kernel else None
    for file in table_files(arguments.paths):
        metadata = read_metadata(file)
        spec = given or parse_kernel(metadata["kernel"])
        print(f"{file}: {check_tables(file, spec)}")
        if metadata["source_hash"] != spec.source_hash:
            print(f"{file}: note: it was recorded with another jit source of {spec.name} than the one here")
    for path in arguments.paths:
        if (sums := path / CHECKSUMS).is_file():
            print(f"{sums}: {check_sums(sums)} files are as listed")
    return 0
