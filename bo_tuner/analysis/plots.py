"""Plots: each function takes a frame and an ``Axes`` and returns the ``Axes``. The one place that draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: Okabe and Ito's palette, which colour-blind readers tell apart; line styles say the same in black and white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
GREY = "0.55"

STYLE: dict[Any, object] = {
    "figure.dpi": 120,
    "savefig.dpi": 160,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.92",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "pdf.fonttype": 42,  # embedded fonts that a publisher accepts
}


@contextmanager
def figure(path: Path, *, n_columns: int = 1, width: float = 4.6, height: float = 3.2) -> Iterator[list[Axes]]:
    """Axes side by side in the house style; the figure is written to ``path`` at the end."""
    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(width * n_columns, height), layout="constrained")
        yield list(canvas.subplots(1, n_columns, squeeze=False)[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path)


def sample_efficiency(curves: pd.DataFrame, axes: Axes, *, random: pd.DataFrame | None = None, title: str = "") -> Axes:
    """Efficiency of the chosen config against trials paid, one line a method, with its 95 % band.

    Args:
        curves: ``method``, ``trial``, ``mean``, ``low``, ``high``.
        axes: where to draw.
        random: ``trial`` and ``mean``, the exact expectation of random search; drawn in grey behind.
        title: what the panel is about.
    """
    if random is not None:
        axes.plot(random["trial"], random["mean"], color=GREY, linewidth=1.4, label="random (expected)", zorder=1)
    for method, curve, style in _styled(curves):
        axes.fill_between(curve["trial"], curve["low"], curve["high"], color=style["color"], alpha=0.12, linewidth=0)
        axes.plot(curve["trial"], curve["mean"], label=method, **style)
    axes.axhline(1.0, color="0.3", linewidth=0.8, zorder=0)
    axes.set(xlabel="trials (failed ones count)", ylabel="efficiency of the chosen config", title=title)
    axes.set_ylim(top=1.01)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _ticks(axes, curves)
    axes.legend(loc="lower right")
    return axes


def regret(curves: pd.DataFrame, axes: Axes, *, title: str = "") -> Axes:
    """Simple regret against trials, log scale; columns as for ``sample_efficiency``."""
    for method, curve, style in _styled(curves):
        axes.fill_between(curve["trial"], curve["low"], curve["high"], color=style["color"], alpha=0.12, linewidth=0)
        axes.plot(curve["trial"], curve["mean"], label=method, **style)
    axes.set_yscale("log")
    axes.set(xlabel="trials (failed ones count)", ylabel="regret, log(time / best time)", title=title)
    _ticks(axes, curves)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # curves fill the panel from corner to corner
    return axes


def efficiency_by_time(studies: pd.DataFrame, axes: Axes, *, title: str = "") -> Axes:
    """A dot a task: efficiency after the last trial against the time of the chosen config (``final_us``, log scale)."""
    last = studies[studies["trial"] == studies["trial"].max()]
    axes.scatter(last["final_us"], last["efficiency"], s=10, color=COLOURS[0], alpha=0.7, linewidths=0)
    axes.axhline(1.0, color="0.3", linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    axes.set(xlabel="time of the chosen config, µs", ylabel="efficiency", title=title)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    return axes


def trials_needed(shares: pd.DataFrame, axes: Axes, *, title: str = "") -> Axes:
    """Share of tasks that have reached a target, against trials; columns ``method``, ``trial``, ``share``."""
    for method, curve, style in _styled(shares):
        axes.step(curve["trial"], curve["share"], where="post", label=method, **style)
    axes.set(xlabel="trials (failed ones count)", ylabel="share of tasks", title=title, ylim=(0, 1.01))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _ticks(axes, shares)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))  # steps fill the panel
    return axes


def _styled(curves: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    for number, method in enumerate(curves["method"].unique()):
        style = {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)]}
        yield method, curves[curves["method"] == method], style


def _ticks(axes: Axes, curves: pd.DataFrame) -> None:
    last = int(curves["trial"].max())
    axes.set_xlim(0.5, last + 0.5)
    axes.set_xticks([1, *range(5, last + 1, 5)] if last > 10 else range(1, last + 1))
