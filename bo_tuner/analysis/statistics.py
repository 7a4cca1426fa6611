"""Intervals, and how often they hold. Tasks are the sample; seeds only make a task's own mean more certain."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def bootstrap_band(
    cube: NDArray[np.float64],
    rng: np.random.Generator,
    *,
    n_resamples: int = 2000,
    level: float = 0.95,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile interval of the mean by two-level resampling.

    Each resample draws tasks with replacement and then, for every drawn task, seeds with replacement.

    Args:
        cube: values, shape ``n_tasks × n_seeds × n_points``.
        rng: the generator that draws every resample.
        n_resamples: how many.
        level: coverage.

    Returns:
        Lower and upper end, each of length ``n_points``.
    """
    n_tasks, n_seeds, n_points = cube.shape
    if min(cube.shape) == 0:
        raise ValueError(f"cube: shape {cube.shape} holds no value")
    means = np.empty((n_resamples, n_points))
    for row in range(n_resamples):
        tasks = rng.integers(n_tasks, size=(n_tasks, 1))
        seeds = rng.integers(n_seeds, size=(n_tasks, n_seeds))
        means[row] = cube[tasks, seeds].mean(axis=(0, 1))
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high


def mean_interval(values: NDArray[np.float64], rng: np.random.Generator, *, level: float = 0.95) -> tuple[float, float]:
    """BCa bootstrap interval of the mean of one value a task; a point when all values are equal."""
    from scipy import stats

    if len(values) < 2 or np.ptp(values) == 0:
        return float(values.mean()), float(values.mean())
    interval = stats.bootstrap((values,), np.mean, confidence_level=level, rng=rng).confidence_interval
    return float(interval.low), float(interval.high)


def coverage(frame: pd.DataFrame) -> pd.DataFrame:
    """How often predicted bounds held, and whether predicted means were right.

    Args:
        frame: one row a prediction, of one run a task: ``trial`` (number of trials), ``predicted`` (mean), ``bound``
            (upper end) and ``true``, all three in the same unit.

    Returns:
        One row a number of trials, indexed by ``trial``: ``n``, ``covered`` (share of rows with true ≤ bound), its
        95 % Wilson interval ``low`` and ``high``, and the means of ``predicted``, ``bound`` and ``true``.
    """
    from scipy import stats

    rows = []
    for trial, group in frame.groupby("trial"):
        n_held = int((group["true"] <= group["bound"]).sum())
        low, high = stats.binomtest(n_held, len(group)).proportion_ci(method="wilson")
        counts = {"trial": trial, "n": len(group), "covered": n_held / len(group), "low": low, "high": high}
        rows.append(counts | group[["predicted", "bound", "true"]].mean().to_dict())
    return pd.DataFrame(rows).set_index("trial")
