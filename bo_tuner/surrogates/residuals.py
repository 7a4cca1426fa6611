"""What the source tasks' residuals teach: their size, their covariance over configs, and the noise of one reading."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bo_tuner.storage.alignment import align, find_codes, pool_codes
from bo_tuner.storage.tables import TaskTable

Floats = NDArray[np.float64]

#: Residuals are clipped here: a kernel that once ran three times slower than predicted is a rare event, not a variance.
CLIP = 1.0
#: Log deviation at which one reading is an outlier rather than noise.
NOISE_CLIP = 0.15


@dataclass(frozen=True)
class Curve:
    """A function of one variable by its knots: linear in between, constant outside.

    Args:
        x: knots, ascending, ``[k]``.
        y: values, ``[k]``.
    """

    x: Floats
    y: Floats

    def __call__(self, at: Floats) -> Floats:
        return np.interp(at, self.x, self.y)


@dataclass(frozen=True)
class Residuals:
    """Cross-fitted residuals of all source tasks, aligned by config code.

    Args:
        codes: codes of all configs that any source has, ascending, ``[n_codes]``.
        values: log(best / time) minus prediction minus the task's level, ``[n_tasks, n_codes]`` float16; NaN where
            the task has no correct measurement.
        variance: of a residual, as a curve over the predicted mean.
    """

    codes: NDArray[np.int64]
    values: NDArray[np.float16]
    variance: Curve

    def without(self, tasks: NDArray[np.bool_]) -> Residuals:
        """The same without some tasks, ``[n_tasks]``; the curve of the variance stays."""
        return replace(self, values=self.values[~tasks])

    def factor(self, codes: NDArray[np.int64], mean: Floats, shrinkage: float) -> tuple[NDArray[np.float32], Floats]:
        """Low-rank factor and remaining variance of the shrunk covariance over the configs of a pool.

        A config's residuals are divided by the root of how many tasks have it, which keeps the product positive
        semidefinite where tasks are missing. A config that fewer than three tasks have takes its variance from the
        curve, as does the part that shrinkage takes away.

        Args:
            codes: of the pool, ``[N]``.
            mean: the pool's predicted mean, ``[N]``.
            shrinkage: share of the empirical part, from 0 to 1.

        Returns:
            ``[N, n_tasks]`` and ``[N]``; the factor is single precision, which is finer than the residuals are.
        """
        at = find_codes(self.codes, codes)
        aligned = self.values[:, at].T.astype(np.float32)
        aligned[at < 0] = np.nan
        counts = np.count_nonzero(~np.isnan(aligned), axis=1)
        weight = np.sqrt(shrinkage / np.maximum(counts, 1)).astype(np.float32)
        factor = np.nan_to_num(aligned, copy=False, nan=0.0) * weight[:, None]
        own = np.einsum("nt,nt->n", factor, factor, dtype=np.float64)
        from_curve = self.variance(mean)
        rest = np.where(counts < 3, np.maximum(from_curve - own, 0.0), (1.0 - shrinkage) * from_curve)
        return factor, rest


def align_residuals(tables: Sequence[TaskTable], left_out: Sequence[Floats]) -> Residuals:
    """Residuals of cross-fitted predictions.

    Each task's level, its weighted mean residual with weight on the configs predicted to be fast, is taken out: a
    tuning run cannot know it and the covariance has a term of its own for it.

    Args:
        tables: the source tasks.
        left_out: predictions of log(best / time) by trees that did not see the task, each ``[len(table)]``.
    """
    all_codes = [pool_codes(table.pool) for table in tables]
    codes, values = align(all_codes, [_residual(table, own) for table, own in zip(tables, left_out, strict=True)])
    stored = values.astype(np.float16)  # what a checkpoint keeps, so that a loaded prior is the trained one
    means = np.concatenate(left_out)
    flat = np.concatenate([stored[row, np.searchsorted(codes, own)] for row, own in enumerate(all_codes)])
    ok = ~np.isnan(flat)
    return Residuals(codes, stored, variance_curve(means[ok], flat[ok].astype(np.float64)))


def _residual(table: TaskTable, predicted: Floats) -> Floats:
    """What a prediction leaves of a task's log efficiency, its level taken out; NaN where a config is not correct."""
    residual = log_efficiency(table) - predicted
    ok = table.correct
    if not ok.any():
        return residual
    level = np.average(residual[ok], weights=np.exp(3.0 * predicted[ok]))
    return np.clip(residual - level, -CLIP, CLIP)


def log_efficiency(table: TaskTable) -> Floats:
    """log(best / final time) of every config of a source task, NaN where not correct."""
    return np.log(table.best_us / np.where(table.correct, table.final_us, np.nan))


def variance_curve(mean: Floats, residual: Floats) -> Curve:
    """Mean squared residual in classes of the predicted mean, finer towards the fast end."""
    edges = np.unique(np.quantile(mean, [0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.995, 1]))
    if len(edges) < 2:
        return Curve(np.array([0.0]), np.array([max(float(np.mean(residual**2)), 1e-6)]))
    place = np.clip(np.searchsorted(edges, mean, side="right") - 1, 0, len(edges) - 2)
    counts = np.bincount(place, minlength=len(edges) - 1)
    squares = np.bincount(place, weights=residual**2, minlength=len(edges) - 1)
    filled = counts > 0
    middles = (edges[1:] + edges[:-1]) / 2
    return Curve(middles[filled], np.maximum(squares[filled] / counts[filled], 1e-6))


def noise_curve(tables: Sequence[TaskTable]) -> Curve:
    """Variance of one screening reading (log), as a curve over log time in µs.

    Taken from the finalists, whose final time is known well; the drift that is common to a task's readings is taken
    out, since the level absorbs it.
    """
    times, deviations = [], []
    for table in tables:
        finalist = table.correct & (table.n_final > 0)
        if finalist.sum() >= 3:
            deviation = np.log(table.reading_us[finalist] / table.final_us[finalist])
            times.append(np.log(table.final_us[finalist]))
            deviations.append(np.clip(deviation - np.median(deviation), -NOISE_CLIP, NOISE_CLIP))
    if not times:
        return Curve(np.array([0.0]), np.array([1e-4]))
    time, deviation = np.concatenate(times), np.concatenate(deviations)
    edges = np.quantile(time, np.linspace(0, 1, 1 + int(np.clip(len(times) // 4, 1, 6))))
    pairs = [(low, high, (time >= low) & (time <= high)) for low, high in itertools.pairwise(edges)]
    return Curve(
        np.array([(low + high) / 2 for low, high, _ in pairs]),
        np.array([max(float(np.mean(deviation[inside] ** 2)), 1e-6) for *_, inside in pairs]),
    )


def greedy_portfolio(tables: Sequence[TaskTable], n: int = 32) -> NDArray[np.int64]:
    """Codes of at most ``n`` configs that, in turn, raise the sources' mean best efficiency most (greedy cover)."""
    all_codes = [pool_codes(table.pool) for table in tables]
    codes, efficiency = align(all_codes, [table.efficiencies for table in tables], missing=0.0)
    best = np.zeros((len(tables), 1))
    chosen: list[int] = []
    for _ in range(min(n, len(codes))):
        gain = np.maximum(efficiency, best).mean(axis=0)
        gain[chosen] = -1.0
        chosen.append(int(np.argmax(gain)))
        best = np.maximum(best, efficiency[:, chosen[-1:]])
    return codes[chosen]
