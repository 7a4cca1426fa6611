"""Sample-efficiency curves: how good the chosen config is after each trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bo_tuner.analysis.statistics import bootstrap_band

if TYPE_CHECKING:
    import pandas as pd


def cube(studies: pd.DataFrame, method: str, value: str = "efficiency") -> NDArray[np.float64]:
    """One column of one method's rows, shape ``n_tasks × n_seeds × n_trials``.

    A study that ended early (its pool was exhausted) keeps its last value.

    Raises:
        ValueError: a column is missing, or the seeds differ between tasks.
    """
    missing = sorted({"task", "method", "seed", "trial", value} - set(studies.columns))
    if missing:
        raise ValueError(f"studies: column {missing[0]} is missing")
    rows = studies[studies["method"] == method]
    wide = rows.pivot(index=["task", "seed"], columns="trial", values=value).sort_index()
    wide = wide.ffill(axis="columns")
    n_tasks = wide.index.get_level_values("task").nunique()
    n_seeds = wide.index.get_level_values("seed").nunique()
    if len(wide) != n_tasks * n_seeds:
        raise ValueError(f"studies: {method} has {len(wide)} runs, not {n_seeds} seeds on each of {n_tasks} tasks")
    return wide.to_numpy(dtype=np.float64).reshape(n_tasks, n_seeds, -1)


def mean_curves(
    studies: pd.DataFrame, value: str = "efficiency", *, n_resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Mean over tasks of per-task means over seeds, with a 95 % bootstrap band.

    Args:
        studies: the tidy frame, see the package's docstring.
        value: the column to average: ``efficiency``, or ``regret`` where that was added.
        n_resamples: bootstrap resamples of tasks and, inside each task, of seeds.
        seed: of the resampling.

    Returns:
        One row a method and trial: ``method``, ``trial``, ``mean``, ``low``, ``high``. Methods keep the order of
        their first appearance.
    """
    import pandas as pd

    curves = []
    for method in studies["method"].unique():
        values = cube(studies, method, value)
        rng = np.random.default_rng(seed)  # the same tasks are drawn for every method
        low, high = bootstrap_band(values, rng, n_resamples=n_resamples)
        trials = np.arange(1, values.shape[2] + 1)
        curves.append(
            pd.DataFrame(
                {"method": method, "trial": trials, "mean": values.mean(axis=(0, 1)), "low": low, "high": high},
            )
        )
    return pd.concat(curves, ignore_index=True)


def with_regret(studies: pd.DataFrame, *, floor: float = 1e-3, ceiling: float = 3.0) -> pd.DataFrame:
    """The frame with a column ``regret``: log(time of the best so far / best time), between ``floor`` and ``ceiling``.

    The floor is the noise of recorded times: a smaller difference is none. The ceiling stands for a study in which
    nothing was correct yet, whose regret has no value.
    """
    efficiency = studies["efficiency"].to_numpy(dtype=np.float64)
    with np.errstate(divide="ignore"):
        values = np.clip(-np.log(efficiency), floor, ceiling)
    return studies.assign(regret=values)


def trials_to(studies: pd.DataFrame, target: float) -> pd.DataFrame:
    """Share of tasks whose chosen config has reached an efficiency, by method and trial.

    The seeds of a task are averaged first. Once reached counts as reached: noise can make a later choice worse.

    Returns:
        ``method``, ``trial``, ``share``.
    """
    import pandas as pd

    parts = []
    for method in studies["method"].unique():
        reached = np.maximum.accumulate(cube(studies, method).mean(axis=1), axis=1) >= target
        trials = np.arange(1, reached.shape[1] + 1)
        parts.append(pd.DataFrame({"method": method, "trial": trials, "share": reached.mean(axis=0)}))
    return pd.concat(parts, ignore_index=True)
