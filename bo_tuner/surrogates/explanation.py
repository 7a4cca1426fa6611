"""Why a run chose what it chose: what the model expected of each trial, from which sources, and by which features.

Everything is in log speed, y = -log(time in µs); a positive contribution makes a config faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bo_tuner.space import Config, Pool
from bo_tuner.study import Trial
from bo_tuner.surrogates.meta_gp import MetaGP

Floats = NDArray[np.float64]

#: Orders in which features are exchanged, each also taken backwards.
N_ORDERS = 24


@dataclass(frozen=True)
class Prediction:
    """What the model expected of a config before its trial.

    Args:
        efficiency: prior mean of best time / time, all that is known before a trial is correct.
        time_us: exp of minus the posterior mean given the earlier trials, in µs; None before one is correct.
        log_sd: posterior standard deviation of log time, without the noise of the reading; None likewise.
    """

    efficiency: float
    time_us: float | None = None
    log_sd: float | None = None


@dataclass(frozen=True)
class Contribution:
    """What one source task or one feature adds to a log speed; ``values`` are the feature's in both configs."""

    name: str
    log_speed: float
    values: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Origin:
    """Where the posterior mean of a config comes from; the terms add up to log speed - prior mean - level.

    Args:
        sources: one term a source task, in the order of training.
        parameters: what the covariance over parameters adds, the config's own readings included.
        level: by how much the task's level moved from the mean of the readings.
    """

    sources: tuple[Contribution, ...]
    parameters: float
    level: float


def predictions(surrogate: MetaGP, pool: Pool, trials: Sequence[Trial]) -> list[Prediction]:
    """What a trained surrogate expects of each trial, given the ones before it."""
    efficiencies = np.exp(surrogate.prior_mean(pool))
    found = []
    for at, trial in enumerate(trials):
        row = pool.index(trial.config)
        expected = Prediction(float(efficiencies[row]))
        if any(earlier.measurement.ok for earlier in trials[:at]):
            model = surrogate.fit(pool, trials[:at])
            time_us, log_sd = (-model.pool_mean[row]).exp(), model.pool_variance[row].sqrt()
            expected = Prediction(expected.efficiency, float(time_us), float(log_sd))
        found.append(expected)
    return found


def origin(surrogate: MetaGP, pool: Pool, trials: Sequence[Trial], config: Config) -> Origin:
    """Where the posterior mean of a config after all trials comes from.

    Raises:
        ValueError: no trial is correct.
    """
    model, covariance = surrogate.fit(pool, trials), surrogate.covariance(pool)
    row, observed = torch.tensor([pool.index(config)]), model.observed
    factor = covariance.empirical.factor[torch.cat([row, observed])].double()
    of_sources = covariance.scale * covariance.share * factor[0] * (factor[1:].T @ model.weights)
    everything = float(covariance.between(row, observed)[0] @ model.weights)
    level = covariance.level_variance * float(model.weights.sum())
    named = zip(surrogate.header["sources"], of_sources.tolist(), strict=True)
    sources = tuple(Contribution(name, log_speed) for name, log_speed in named)
    return Origin(sources, everything - level - float(of_sources.sum()), level)


def feature_differences(surrogate: MetaGP, pool: Pool, chosen: Config, other: Config) -> list[Contribution]:
    """By which features the prior mean tells two configs apart, largest first; together they make the difference.

    The other config's features are exchanged for the chosen one's one after another, in many orders, and each gets its
    mean effect (Shapley values with the other config as the baseline): LightGBM's own contributions need the story of
    the trees' growth, which a checkpoint does not keep, and would fit no other kind of mean. Empty for a prior mean
    that is no function of the features.
    """
    names, features = surrogate.design(pool)
    start, end = features[pool.index(other)], features[pool.index(chosen)]
    differing = np.flatnonzero(start != end)
    if not len(differing):
        return []
    effects = _exchanged(lambda mixed: surrogate.mean_at(pool, mixed), start, end, differing)
    if effects is None:
        return []
    found = [
        Contribution(names[at], float(effect), (float(end[at]), float(start[at])))
        for at, effect in zip(differing, effects, strict=True)
    ]
    return sorted(found, key=lambda one: -abs(one.log_speed))


def _exchanged(
    predict: Callable[[Floats], Floats], start: Floats, end: Floats, places: NDArray[np.int64]
) -> Floats | None:
    """Mean effect of each place, ``[n]``, over orders of exchange from ``start`` to ``end``, both ``[d]``.

    None if the prediction does not follow the features.
    """
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(places)) for _ in range(N_ORDERS)]
    orders += [order[::-1] for order in orders]
    mixed = np.tile(start, (len(orders), len(places) + 1, 1))
    for path, order in zip(mixed, orders, strict=True):
        for step, at in enumerate(order, start=1):
            path[step:, places[at]] = end[places[at]]
    predicted = predict(mixed.reshape(-1, len(start)))
    if predicted.shape != (len(orders) * (len(places) + 1),):
        return None
    steps = np.diff(predicted.reshape(len(orders), -1), axis=1)
    effects = np.zeros(len(places))
    for order, gained in zip(orders, steps, strict=True):
        effects[order] += gained / len(orders)
    return effects
