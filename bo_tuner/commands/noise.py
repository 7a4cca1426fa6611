"""Say how noisy a recorded table is, by itself and against a repeat recording of the same shapes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bo_tuner.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "table", metavar="TABLE", type=Path, help="a recorded table, e.g. data/gemm/…/validation.parquet"
    )
    parser.add_argument(
        "repeat", metavar="REPEAT", type=Path, nargs="?", help="another recording of some of its shapes"
    )
    parser.add_argument("--kernel", metavar="NAME", help="package.module of its spec, if it is no built-in")


def run(arguments: argparse.Namespace) -> int:
    """Read, compare, print."""
    from bo_tuner.analysis.noise import between_recordings, by_time_class, within_recording
    from bo_tuner.analysis.tables import plain_table
    from bo_tuner.commands.screen import console

    recorded = _frame(arguments.table, arguments.kernel)
    out = console()
    out.print(plain_table(by_time_class(within_recording(recorded)), f"within {arguments.table}: medians over shapes"))
    if arguments.repeat is not None:
        repeat = _frame(arguments.repeat, arguments.kernel)
        if not set(repeat["task"]) & set(recorded["task"]):
            raise UserError(f"REPEAT: {arguments.repeat} has no shape of {arguments.table}")
        compared = by_time_class(between_recordings(recorded, repeat))
        out.print(plain_table(compared, f"{arguments.repeat} against it: medians over shapes"))
    return 0


def _frame(path: Path, kernel: str | None) -> pd.DataFrame:
    """One row a correct config of every task of a table."""
    from bo_tuner.commands.arguments import parse_kernel
    from bo_tuner.commands.figures import timing_frame
    from bo_tuner.storage.tables import read_metadata, read_tables

    return timing_frame(read_tables(path, parse_kernel(kernel or read_metadata(path)["kernel"])))
