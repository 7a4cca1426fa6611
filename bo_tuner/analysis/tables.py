"""Summaries as tables: for the screen (rich) and for a report (Markdown)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

#: The statistics over tasks that a summary holds, in the order in which they are printed.
STATISTICS = {
    "mean": "mean",
    "median": "median",
    "worst_tenth": "worst tenth",
    "p10": "10th percentile",
    "min": "worst task",
}


def efficiency_table(summary: pd.DataFrame, title: str) -> Table:
    """Efficiency by method and number of trials.

    Args:
        summary: one row a method and number of trials: ``method``, ``trials`` and the ``STATISTICS``.
        title: printed above.
    """
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("method")
    table.add_column("trials", justify="right")
    for label in STATISTICS.values():
        table.add_column(label, justify="right")
    previous = None
    for row in summary.to_dict("records"):
        if previous not in (None, row["method"]):
            table.add_section()
        table.add_row(
            "" if previous == row["method"] else str(row["method"]),
            str(row["trials"]),
            *(f"{row[name]:.3f}" for name in STATISTICS),
        )
        previous = row["method"]
    return table


def plain_table(frame: pd.DataFrame, title: str) -> Table:
    """A frame as it is, fractions with three decimals; the first column names the rows."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for place, name in enumerate(frame.columns):
        table.add_column(str(name), justify="right" if place else "left")
    for row in frame.itertuples(index=False):
        table.add_row(*(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row))
    return table


def markdown(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table: numbers with three decimals, columns under their own names."""
    header = [str(STATISTICS.get(name, name)) for name in frame.columns]
    lines = [header, ["---"] * len(header)]
    for row in frame.itertuples(index=False):
        lines.append([f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
