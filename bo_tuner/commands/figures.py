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


def timing_frame(tables: Sequence[TaskTable]) -> pd.DataFrame:
    """One row a correct config of every task, as ``analysis.noise`` takes it."""
    import pandas as pd

    frames = [
        pd.DataFrame(
            {
                "task": table.task.key,
                "config": table.pool.keys,
                "screening_us": table.reading_us,
                "final_us": table.final_us,
                "n_final": table.n_final,
            }
        )[table.correct]
        for table in tables
    ]
    return pd.concat(frames, ignore_index=True)


def repeat_ceiling(tables: Sequence[TaskTable], repeat: Sequence[TaskTable]) -> dict[str, float] | None:
    """How well a second recording of some tasks repeats the first: a ceiling of any efficiency.

    Returns:
        ``n_tasks`` that both have, statistics of the efficiency that the config which was best first has in the second
        recording, and the shares of tasks where it is within 1 % and 2 % of the best; None if they share no task.
    """
    from bo_tuner.analysis.noise import between_recordings
    from bo_tuner.protocol import tail_statistics

    again = {table.task.key: table for table in repeat}
    both = [table for table in tables if table.task.key in again]
    if not both:
        return None
    compared = between_recordings(timing_frame(both), timing_frame([again[table.task.key] for table in both]))
    kept = compared["kept"].to_numpy(dtype=float)
    shares = {"within_1_percent": float((kept >= 0.99).mean()), "within_2_percent": float((kept >= 0.98).mean())}
    return {"n_tasks": len(both), **tail_statistics(kept), **shares}


def _geometric_mean(logs: Sequence[float]) -> float | None:
    return math.exp(sum(logs) / len(logs)) if logs else None
