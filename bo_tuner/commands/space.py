"""Show the search space of a kernel for a shape: parameters, valid configs, what rejected the rest."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bo_tuner.commands.arguments import add_device, add_dimensions, add_kernel, parse_task

if TYPE_CHECKING:
    from rich.table import Table

    from bo_tuner.space import Pool


#: Stands above the table of :func:`rejected_table`.
REJECTED_TITLE = "what rejected the rest; a rule is applied once the parameters it reads are combined"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel(parser)
    add_dimensions(parser)
    add_device(parser, "device whose limits decide validity (default: nvidia_h200)")


def run(arguments: argparse.Namespace) -> int:
    """Enumerate the pool and print it in numbers."""
    from rich.table import Table

    from bo_tuner.commands.screen import console

    spec, task = parse_task(arguments)
    pool = spec.pool(task)
    out = console()
    out.print(f"{task.key}: {len(pool):,} valid configs", highlight=False)

    parameters = Table("parameter", "values", "kind", "key", "in effect")
    for parameter in pool.parameters:
        share = pool.active[parameter.name].mean() if len(pool) else 0.0
        parameters.add_row(
            parameter.name,
            " ".join(map(str, parameter.values)),
            parameter.kind.replace("_", " "),
            "launch" if parameter.launch else "compile",
            "always" if parameter.active is None else f"in {share:.0%} of configs",
        )
    out.print(parameters)

    out.print(REJECTED_TITLE)
    out.print(rejected_table(pool))
    return 0


def rejected_table(pool: Pool) -> Table:
    """How many combinations of parameters each rule of the space excluded."""
    from rich.table import Table

    rejected = Table("rule")
    rejected.add_column("combinations", justify="right")
    for reason, count in pool.rejected.items():
        rejected.add_row(reason, f"{count:,}")
    rejected.add_section()
    rejected.add_row("none: valid", f"{len(pool):,}")
    return rejected
