from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from bo_tuner.study import Distance
from bo_tuner.surrogates.covariance import MixedCovariance
from bo_tuner.surrogates.distance import N_ROWS, DistanceFactors, distance_to_best, fit_factors
from bo_tuner.surrogates.pool_model import PoolGP
from bo_tuner.surrogates.residuals import Curve


@dataclass(frozen=True)
class Independent:
    """Every row by itself."""

    variance: Tensor

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        return self.variance[a][..., :, None] * (a[..., :, None] == b[..., None, :])

    def with_all(self, a: Tensor) -> Tensor:
        return self.between(a, torch.arange(len(self.diagonal())))

    def diagonal(self) -> Tensor:
        return self.variance


def model(mean: list[float], sd: list[float], observed: int = 0) -> PoolGP:
    """Rows that know nothing of each other; the observed one reads what was expected of it."""
    values = torch.tensor(mean, dtype=torch.float64)
    inputs = torch.arange(len(mean), dtype=torch.float64).unsqueeze(-1)
    variance = torch.tensor(sd, dtype=torch.float64).square()
    at = torch.tensor([observed])
    return PoolGP(inputs, values, Independent(variance), at, values[at], torch.zeros(1, dtype=torch.float64))


def none(n: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.zeros(n, dtype=bool)


def test_a_config_known_to_be_slower_by_a_tenth() -> None:
    told = distance_to_best(model([-0.1, 0.0, -1.0], [1e-6, 1e-6, 1e-6]), 0, none(3))
    expected = 1 - np.exp(-0.1)
    assert [told.mean, told.low, told.high] == pytest.approx([expected] * 3, abs=1e-3)
    assert (told.n_configs, told.calibrated) == (3, False)


def test_one_uncertain_rival_has_the_quantiles_of_its_normal() -> None:
    told = distance_to_best(model([0.0, 0.0], [1e-6, 0.1]), 0, none(2))
    assert told.low == 0.0
    assert told.high == pytest.approx(1 - np.exp(-0.1 * stats.norm.ppf(0.95)), rel=0.1)
    assert told.mean == pytest.approx(0.1 / np.sqrt(2 * np.pi), rel=0.15)


def test_what_fails_cannot_be_the_best() -> None:
    fitted = model([-0.1, 0.0, -0.05], [1e-6, 1e-6, 1e-6])
    told = distance_to_best(fitted, 0, np.array([False, True, False]))
    assert told.mean == pytest.approx(1 - np.exp(-0.05), abs=1e-3)
    assert told.n_configs == 2
    assert distance_to_best(fitted, 0, np.array([False, True, True])).high == 0.0


def test_what_is_common_to_both_configs_is_no_distance() -> None:
    """A level that nobody knows moves both alike; a joint sample knows that, single variances do not."""
    encoded = torch.zeros(2, 1, dtype=torch.float64)
    scales, sd = torch.ones(1, dtype=torch.float64), torch.full((2,), 1e-4, dtype=torch.float64)
    covariance = MixedCovariance(encoded, [0], [], scales, sd, 1.0, 4.0)
    zero, one = torch.zeros(2, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    fitted = PoolGP(torch.zeros(2, 2, dtype=torch.float64), zero, covariance, torch.tensor([0]), 0 * one, one)
    assert fitted.pool_variance.min() > 0.5
    assert distance_to_best(fitted, 0, none(2)).high < 1e-3


def test_the_joint_posterior_is_that_of_gpytorch() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(20, 2, dtype=torch.float64, generator=generator)
    ones = torch.ones(20, dtype=torch.float64)
    covariance = MixedCovariance(x, [0, 1], [], ones[:2], ones, 0.8, 0.3)
    inputs = torch.column_stack([torch.arange(20, dtype=torch.float64), x])
    fitted = PoolGP(inputs, 0 * ones, covariance, torch.tensor([1, 5]), ones[:2], 0.01 * ones[:2])
    rows = torch.tensor([5, 7, 2])
    mean, joint = fitted.joint(rows)
    with torch.no_grad():
        expected = fitted.posterior(inputs[rows])
    torch.testing.assert_close(mean, expected.mean[:, 0])
    torch.testing.assert_close(joint, expected.distribution.covariance_matrix)
    added = covariance.between(rows, torch.tensor([1, 5])) @ fitted.weights
    torch.testing.assert_close(mean, added)


def test_the_same_seed_tells_the_same_and_many_rows_cost_little() -> None:
    n = 10_000
    rng = np.random.default_rng(0)
    fitted = model(rng.standard_normal(n).tolist(), [0.1] * n, observed=n - 1)
    start = time.perf_counter()
    first = distance_to_best(fitted, n - 1, none(n), seed=3)
    assert time.perf_counter() - start < 1.0  # a fiftieth of that, but machines are busy
    assert first == distance_to_best(fitted, n - 1, none(n), seed=3)
    assert first.n_configs == n > N_ROWS


def test_factors_make_the_mean_right_and_the_bound_hold() -> None:
    rng = np.random.default_rng(0)
    n_trials = np.repeat([1, 20], 500)
    scale = np.where(n_trials == 1, 3.0, 0.5)
    true = 0.02 * rng.exponential(size=1000) * scale
    predicted, bounds = np.full(1000, 0.02), np.full(1000, 0.06)
    factors = fit_factors(n_trials, predicted, bounds, true)
    for n, here in ((1, n_trials == 1), (20, n_trials == 20)):
        told = factors.apply(Distance(0.02, 0.0, 0.06, 9, calibrated=False), n)
        assert told.mean == pytest.approx(true[here].mean())
        assert np.mean(true[here] <= told.high) == pytest.approx(0.95, abs=0.005)
        assert told.calibrated
    between = factors.apply(Distance(0.02, 0.0, 0.06, 9, calibrated=False), 5)
    assert true[n_trials == 20].mean() < between.mean < true[n_trials == 1].mean()


def test_shares_stay_shares() -> None:
    factors = DistanceFactors(Curve(np.zeros(1), np.full(1, 9.0)), Curve(np.zeros(1), np.full(1, 0.1)), 0.0)
    told = factors.apply(Distance(0.5, 0.2, 0.9, 3, calibrated=False), 4)
    assert (told.mean, told.low, told.high) == (1.0, 1.0, 1.0)


def test_a_model_that_is_wrongly_certain_costs_the_others_little() -> None:
    n_trials, true, bounds = np.full(40, 5), np.linspace(0.0, 0.03, 40), np.full(40, 0.05)
    true[:4], bounds[:4] = 0.03, 0.0
    factors = fit_factors(n_trials, true, bounds, true)
    told = np.array([factors.apply(Distance(0.0, 0.0, bound, 9, calibrated=False), 5).high for bound in bounds])
    assert (true <= told).mean() >= 0.95
    assert told.max() < 0.06
