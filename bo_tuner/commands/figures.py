"""Figures that `verify` and `demo` report beside the protocol's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from bo_tuner.storage.tables import TaskTable


def summary_frame(efficiency: Mapping[str, Mapping[str, Mapping[str, float]]]) -> pd.DataFrame:
    """Method → number of trials → statistics, as one row a method and number of trials."""
    import pandas as pd

    return pd.DataFrame(
        {"method": method, "trials": int(trials), **statistics}
        for method, by_trials in efficiency.items()
        for trials, statistics in by_trials.items()
    )


def random_curves(tables: Sequence[TaskTable], n_trials: int) -> pd.DataFrame:
    """Exact expected efficiency of random search: one row a task and trial."""
    import pandas as pd

    from bo_tuner.protocol import random_expectation

    return pd.concat(
        [
            pd.DataFrame(
                {
                    "task": table.task.key,
                    "trial": range(1, n_trials + 1),
                    "efficiency": random_expectation(table, n_trials),
                }
            )
            for table in tables
        ],
        ignore_index=True,
    )


def mean_random_curve(tables: Sequence[TaskTable], n_trials: int) -> pd.DataFrame:
    """The mean over tasks of ``random_curves``: ``trial`` and ``mean``, as the plot takes them."""
    import pandas as pd

    per_task = random_curves(tables, n_trials).pivot(index="task", columns="trial", values="efficiency")
    return pd.DataFrame({"trial": range(1, n_trials + 1), "mean": per_task.mean().to_numpy()})


def random_statistics(tables: Sequence[TaskTable], n_trials: int) -> dict[str, dict[str, float]]:
    """The statistics over tasks of random search's expectation, by reported number of trials."""
    from bo_tuner.protocol import REPORTED_TRIALS, tail_statistics

    per_task = random_curves(tables, n_trials).pivot(index="task", columns="trial", values="efficiency")
    return {str(n): tail_statistics(per_task[n].to_numpy()) for n in REPORTED_TRIALS if n <= n_trials}


def library_ratios(tables: Sequence[TaskTable], frame: pd.DataFrame) -> dict[str, Any]:
    """Speed over the fastest library call, geometric means over tasks.

    Args:
        tables: the tasks; those without a library time are left out.
        frame: what ``protocol.verify`` returned for them.

    Returns:
        ``n_tasks``, ``best`` (the table's best config) and ``chosen`` (the config chosen after the last trial).
    """
    compared = {table.task.key: table for table in tables if table.library_us > 0 and math.isfinite(table.best_us)}
    last = frame[(frame["trial"] == frame["trial"].max()) & frame["task"].isin(compared)]
    best = [math.log(table.library_us / table.best_us) for table in compared.values()]
    chosen = [
        math.log(compared[task].library_us / final_us)
        for task, final_us in zip(last["task"], last["final_us"], strict=True)
        if math.isfinite(final_us)
    ]
    return {"n_tasks": len(compared), "best": _geometric_mean(best), "chosen": _geometric_mean(chosen)}


def _geometric_mean(logs: Sequence[float]) -> float | None:
    return math.exp(sum(logs) / len(logs)) if logs else None
