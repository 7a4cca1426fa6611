"""How far a chosen config is from the best of its pool, by samples of the posterior, and what makes that honest.

Everything is in log time: f(row) = -log(time), so max f - f(chosen) is the log of how many times faster the best config
is. What is told is 1 - exp(-that): the share of the chosen config's time that the best one saves, 1 - efficiency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bo_tuner.study import Distance
from bo_tuner.surrogates.pool_model import PoolGP
from bo_tuner.surrogates.residuals import Curve

#: Joint samples are cubic in the number of rows; the best config is looked for among those with the highest bound.
N_ROWS = 256
N_SAMPLES = 512
#: Added to every row's variance of log time before the samples are drawn.
JITTER = 1e-9
#: Standard deviations above the posterior mean that make a row's bound.
BOUND_SD = 3.0
#: Floors of the upper end that a calibration chooses from.
FLOORS = (0.003, 0.01, 0.03, 0.1)
#: Ends of the interval that is told, and what it holds.
LOW, HIGH = 0.05, 0.95

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DistanceFactors:
    """What predicted distances are multiplied by, learned from source tasks; curves over log(number of trials).

    Args:
        mean: makes the mean prediction right on average.
        high: makes the upper end plus the floor hold on a share ``HIGH`` of the runs.
        floor: share of time that is added to a predicted upper end first. A model that a lucky reading made certain
            predicts no distance at all, which no factor would mend.
    """

    mean: Curve
    high: Curve
    floor: float

    def apply(self, predicted: Distance, n_trials: int) -> Distance:
        """The calibrated distance after so many trials; shares stay between 0 and 1, and the ends around the mean."""
        at = np.log(np.array([max(n_trials, 1)], dtype=np.float64))
        factor = float(self.mean(at)[0])
        mean = min(predicted.mean * factor, 1.0)
        high = min(max((predicted.high + self.floor) * float(self.high(at)[0]), mean), 1.0)
        return Distance(mean, min(predicted.low * factor, mean), high, predicted.n_configs, calibrated=True)


def distance_to_best(model: PoolGP, chosen: int, excluded: NDArray[np.bool_], seed: int = 0) -> Distance:
    """Posterior of the distance of a row to the best row, not calibrated.

    Args:
        model: of y = -log(time in µs) over ``N`` rows.
        chosen: the row.
        excluded: rows that cannot be the best since they fail, ``[N]``.
        seed: of the samples.
    """
    drawn = _sample(model, _candidates(model, chosen, excluded), seed)
    shares = 1.0 - np.exp(-(drawn.max(axis=1) - drawn[:, 0]))
    low, high = np.quantile(shares, [LOW, HIGH])
    n_configs = int(len(excluded) - excluded.sum())
    return Distance(float(shares.mean()), float(low), float(high), n_configs, calibrated=False)


def fit_factors(n_trials: NDArray[np.int64], predicted: Floats, bounds: Floats, true: Floats) -> DistanceFactors:
    """Factors that make predictions of source tasks' distances right, and the floor that makes their bounds tightest.

    The factor of the upper end is that of split conformal prediction: the (n + 1)-fold of the wanted share keeps it
    for one more run. With a high floor all tasks get nearly the same bound, with a low one the model tells them apart.

    Args:
        n_trials: after how many trials each prediction was made, ``[n]``.
        predicted: mean distance, share of time, ``[n]``.
        bounds: upper end, share of time, ``[n]``.
        true: distance by the final times, share of time, ``[n]``.
    """
    knots = np.unique(n_trials)
    groups = [n_trials == knot for knot in knots]
    means = np.array([true[here].mean() / max(predicted[here].mean(), 1e-6) for here in groups])
    factors = np.array([[_held(true[here], bounds[here] + floor) for here in groups] for floor in FLOORS])
    widths = [
        sum(np.log(factor * (bounds[here].mean() + floor) + 1e-6) for factor, here in zip(row, groups, strict=True))
        for row, floor in zip(factors, FLOORS, strict=True)
    ]
    best, at = int(np.argmin(widths)), np.log(knots.astype(np.float64))
    return DistanceFactors(Curve(at, means), Curve(at, factors[best]), FLOORS[best])


def _held(true: Floats, bounds: Floats) -> float:
    """The factor with which bounds hold on a share ``HIGH`` of these runs and one more, both ``[n]``."""
    level = min(HIGH * (1.0 + 1.0 / len(true)), 1.0)
    return float(np.quantile(true / bounds, level, method="higher"))


def _candidates(model: PoolGP, chosen: int, excluded: NDArray[np.bool_]) -> Tensor:
    """Rows among which the best one is looked for, the chosen one first; at most ``N_ROWS``."""
    bound = model.pool_mean + BOUND_SD * model.pool_variance.sqrt()
    bound = bound.masked_fill(torch.as_tensor(excluded), -torch.inf)
    bound[chosen] = torch.inf
    n = min(N_ROWS, int(torch.isfinite(bound).sum()) + 1)
    return torch.topk(bound, n).indices


def _sample(model: PoolGP, rows: Tensor, seed: int) -> Floats:
    """Joint samples of f at ``rows``, ``N_SAMPLES × n``."""
    mean, covariance = model.joint(rows)
    # The posterior of observed rows is nearly singular; a standard deviation of 0.003 % more changes nothing.
    root = torch.linalg.cholesky(covariance + JITTER * torch.eye(len(rows), dtype=covariance.dtype))
    normal = np.random.default_rng(seed).standard_normal((N_SAMPLES, len(rows)))
    samples: Floats = (mean + torch.as_tensor(normal) @ root.T).numpy()
    return samples
