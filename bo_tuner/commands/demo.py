"""Replay recorded tables of shapes that the prior never saw: a table on screen, a plot in a folder."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bo_tuner.commands.arguments import (
    DEFAULT_METHOD,
    DEFAULT_TRIALS,
    add_device,
    add_tables,
    parse_kernel,
    positive,
)
from bo_tuner.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from bo_tuner.storage.tables import TaskTable

KERNELS = ("gemm", "attention")

INTRODUCTION = """\
Replaying tables in which every valid config was timed on a GPU. None of these shapes was among those that the prior
learned from. "chosen" is what meta_gp took after its trials; "random's" is random search's expected efficiency.
"""


@dataclass(frozen=True)
class Replayed:
    """What the demo found out about one kernel."""

    kernel: str
    tables: list[TaskTable]
    studies: pd.DataFrame
    random: pd.DataFrame
    seconds_per_run: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("kernels", metavar="KERNEL", nargs="*", help="kernels (default: gemm attention)")
    parser.add_argument("--shapes", metavar="N", type=positive, default=8, help="shapes a kernel (default: 8)")
    parser.add_argument("--trials", metavar="N", type=positive, default=DEFAULT_TRIALS, help="budget (default: 20)")
    add_tables(parser)
    add_device(parser, "device of the tables (default: the only one there, or nvidia_h200)")
    parser.add_argument("--prior", metavar="FILE", type=Path, help="prior of the one kernel (default: the one shipped)")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("outputs"), help="folder (default: outputs)")


def run(arguments: argparse.Namespace) -> int:
    """Replay every kernel, print its table, draw the plot."""
    from bo_tuner.commands.screen import console

    kernels = arguments.kernels or KERNELS
    if arguments.prior and len(kernels) > 1:
        raise UserError(f"--prior: fits one kernel, and {len(kernels)} are asked for")
    out = console()
    out.print(INTRODUCTION, highlight=False, soft_wrap=True)
    found = []
    for name in kernels:
        found.append(_replay(name, arguments))
        out.print(_table(found[-1], arguments.trials))
        out.print(_verdict(found[-1], arguments.trials), highlight=False)
        out.print()
    path = arguments.out / "sample_efficiency.png"
    out.print(_draw(found, path), highlight=False, soft_wrap=True)
    out.print(_next_step(), highlight=False, soft_wrap=True)
    return 0


def _replay(name: str, arguments: argparse.Namespace) -> Replayed:
    from bo_tuner.commands.figures import random_curves
    from bo_tuner.commands.locate import prior_of_method, read_split, spread, tables_root
    from bo_tuner.commands.screen import Bar
    from bo_tuner.protocol import verify

    spec = parse_kernel(name)
    prior = prior_of_method(DEFAULT_METHOD, spec, arguments.prior)
    tables = read_split(tables_root(arguments.tables), spec, arguments.device, "validation")
    tables = spread(tables, arguments.shapes)
    start = time.perf_counter()
    with Bar(f"{spec.name}: shape", len(tables)) as bar:
        studies = verify(spec, tables, DEFAULT_METHOD, prior=prior, n_trials=arguments.trials, progress=bar.hear)
    seconds = (time.perf_counter() - start) / len(tables)
    return Replayed(spec.name, tables, studies, random_curves(tables, arguments.trials), seconds)


def _table(found: Replayed, n_trials: int) -> Table:
    from rich.table import Table

    from bo_tuner.commands.ledger import microseconds

    device = found.tables[0].task.device.name
    table = Table(title=f"{found.kernel} on {device}: {n_trials} trials a shape", title_justify="left")
    table.add_column("shape", no_wrap=True)
    for column in ("configs", "best of all", "chosen", "efficiency", "random's", "library"):
        table.add_column(column, justify="right")
    last = found.studies[found.studies["trial"] == n_trials].set_index("task")
    final_us, efficiency = last["final_us"].to_dict(), last["efficiency"].to_dict()
    random = found.random[found.random["trial"] == n_trials].set_index("task")["efficiency"].to_dict()
    for one in found.tables:
        key = one.task.key
        table.add_row(
            one.task.shape_key.replace("-", " "),
            f"{len(one):,}",
            microseconds(one.best_us),
            microseconds(final_us[key]),
            f"{efficiency[key]:.1%}",
            f"{random[key]:.1%}",
            microseconds(one.library_us),
        )
    return table


def _verdict(found: Replayed, n_trials: int) -> str:
    last = found.studies[found.studies["trial"] == n_trials]["efficiency"]
    random = found.random[found.random["trial"] == n_trials]["efficiency"]
    return (
        f"After {n_trials} trials meta_gp runs at {last.mean():.1%} of the best of all configs"
        f" (worst shape {last.min():.1%}), random search at {random.mean():.1%}; {found.seconds_per_run:.2f} s a shape."
    )


def _draw(found: list[Replayed], path: Path) -> str:
    """Draw one panel a kernel; returns what to tell about it."""
    from bo_tuner.analysis.curves import mean_curves
    from bo_tuner.commands.figures import mean_random_curve

    try:
        from bo_tuner.analysis import plots
    except ModuleNotFoundError:
        return "No plot: matplotlib is missing; it comes with: pip install 'bo-tuner[experiments]'"
    with plots.figure(path, n_columns=len(found)) as panels:
        for one, axes in zip(found, panels, strict=True):
            curves = mean_curves(one.studies)
            random = mean_random_curve(one.tables, int(one.studies["trial"].max()))
            title = f"{one.kernel}, {len(one.tables)} unseen shapes, {one.tables[0].task.device.name}"
            plots.sample_efficiency(curves, axes, random=random, title=title)
    return f"Plot: {path}"


def _next_step() -> str:
    from bo_tuner.evaluators.live import gpu_is_there

    where = "This machine has a GPU; tune on it" if gpu_is_there() else "On a machine with a GPU, tune for real"
    return f"{where}: bo-tuner tune gemm M=2048 N=6144 K=4096"
