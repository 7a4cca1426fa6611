"""Check recorded tables: no config missing, no time non-finite, finalists re-timed; one line a file."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="table file, or folder of table files")


def run(arguments: argparse.Namespace) -> int:
    """Check every file; the first fault ends with exit code 2."""
    from bo_tuner.errors import UserError
    from bo_tuner.storage.tables import check_tables

    for path in arguments.paths:
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        files = [file for file in files if not file.stem.endswith("_tasks")]
        if not files:
            raise UserError(f"PATH: {path} holds no table file (*.parquet)")
        for file in files:
            print(f"{file}: {check_tables(file)}")
    return 0
