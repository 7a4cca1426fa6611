from __future__ import annotations

import torch
from botorch.models.model import Model
from botorch.posteriors import Posterior

from bo_tuner.surrogates.covariance import MixedCovariance
from bo_tuner.surrogates.pool_model import PoolGP

N = 30
GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(N, 2, dtype=torch.float64, generator=GENERATOR)
INPUTS = torch.column_stack([torch.arange(N, dtype=torch.float64), X])
MEAN = torch.rand(N, dtype=torch.float64, generator=GENERATOR)
SCALES, SD = torch.tensor([0.4, 0.6], dtype=torch.float64), torch.full((N,), 0.5, dtype=torch.float64)
COVARIANCE = MixedCovariance(X, [0, 1], [], SCALES, SD, 0.9, 0.2)
ROWS = torch.tensor([3, 17, 8])
Y = torch.tensor([0.2, 1.0, 0.4], dtype=torch.float64)
NOISE = torch.tensor([1e-2, 1e-3, 1e-2], dtype=torch.float64)


def model() -> PoolGP:
    return PoolGP(INPUTS, MEAN, COVARIANCE, ROWS, Y, NOISE)


def test_single_points_agree_with_gpytorch_and_with_the_formula() -> None:
    fitted = model()
    assert isinstance(fitted, Model)
    fast = fitted.posterior(INPUTS.unsqueeze(-2))
    assert isinstance(fast, Posterior)
    assert fast.mean.shape == (N, 1, 1)
    with torch.no_grad():
        joint = fitted.posterior(INPUTS)
    torch.testing.assert_close(fast.mean[:, 0], joint.mean)
    torch.testing.assert_close(fast.variance[:, 0], joint.variance)
    prior = COVARIANCE.between(torch.arange(N), torch.arange(N))
    weights = torch.linalg.solve(prior[ROWS][:, ROWS] + torch.diag(NOISE), prior[ROWS])
    torch.testing.assert_close(fast.mean[:, 0, 0], MEAN + weights.T @ (Y - MEAN[ROWS]))
    torch.testing.assert_close(fast.variance[:, 0, 0], (prior - prior[ROWS].T @ weights).diagonal())


def test_observed_rows_are_known_better() -> None:
    variance = model().posterior(INPUTS.unsqueeze(-2)).variance[:, 0, 0]
    assert (variance[ROWS] < NOISE + 1e-6).all()
    assert variance.max() > 0.1


def test_batches_keep_their_shape() -> None:
    batch = INPUTS[:20].reshape(4, 5, 1, 3)
    assert model().posterior(batch).mean.shape == (4, 5, 1, 1)
    with torch.no_grad():
        assert model().posterior(INPUTS[:6].reshape(2, 3, 3)).mean.shape == (2, 3, 1)


def test_no_noise_is_not_singular() -> None:
    fitted = PoolGP(INPUTS, MEAN, COVARIANCE, ROWS, Y, torch.zeros(3, dtype=torch.float64))
    assert torch.isfinite(fitted.posterior(INPUTS.unsqueeze(-2)).mean).all()
