from __future__ import annotations

import gpytorch
import pytest
import torch

from bo_tuner.surrogates.covariance import (
    BlendedCovariance,
    EmpiricalCovariance,
    MixedCovariance,
    gaussian_nll,
    mixed_correlation,
)
from bo_tuner.surrogates.pool_model import RememberedCovariance

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(12, 3, dtype=torch.float64, generator=GENERATOR)
X[:, 2] = torch.randint(0, 3, (12,), generator=GENERATOR).to(torch.float64)
SCALES = torch.tensor([0.5, 2.0, 1.5], dtype=torch.float64)
SD = torch.linspace(0.1, 0.5, 12, dtype=torch.float64)
ALL = torch.arange(12)


def blended(share: float) -> BlendedCovariance:
    factor = torch.rand(12, 4, generator=torch.Generator().manual_seed(1))
    empirical = EmpiricalCovariance(factor, torch.full((12,), 0.05, dtype=torch.float64))
    return BlendedCovariance(empirical, MixedCovariance(X, [0, 1], [2], SCALES, SD, 0.8), share, 1.5, 0.3)


def test_mixed_correlation_is_gpytorchs_matern_times_hamming() -> None:
    matern = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2).double()
    matern.lengthscale = SCALES[:2]
    expected = matern(X[:, :2]).to_dense() * torch.exp(-(X[:, None, 2] != X[None, :, 2]).double() / SCALES[2])
    torch.testing.assert_close(mixed_correlation(X, X, [0, 1], [2], SCALES), expected.detach(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_blend_is_a_covariance(share: float) -> None:
    covariance = blended(share)
    full = covariance.between(ALL, ALL)
    assert full.dtype == torch.float64
    torch.testing.assert_close(full, full.T)
    torch.testing.assert_close(full.diagonal(), covariance.diagonal(), rtol=1e-6, atol=0)
    assert torch.linalg.eigvalsh(full).min() > -1e-6  # less than the least noise


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_rows_with_all_are_rows_of_the_whole_and_are_asked_for_once(share: float) -> None:
    covariance = blended(share)
    whole = covariance.between(ALL, ALL)
    remembered = RememberedCovariance(covariance)
    for rows in ([3, 0], [0, 7, 3], [7]):
        at = torch.tensor(rows)
        torch.testing.assert_close(covariance.with_all(at), whole[at])
        torch.testing.assert_close(remembered.with_all(at), whole[at])
    kept = remembered.with_all(torch.tensor([3]))
    covariance.mixed.sd.mul_(2.0)  # would be told otherwise now
    try:
        torch.testing.assert_close(remembered.with_all(torch.tensor([3])), kept)
    finally:
        covariance.mixed.sd.div_(2.0)


def test_batches_of_rows() -> None:
    rows = torch.stack([ALL[:5], ALL[3:8]])
    covariance = blended(0.5)
    batched = covariance.between(rows, rows)
    for at in range(2):
        torch.testing.assert_close(batched[at], covariance.between(rows[at], rows[at]))


def test_nll_is_that_of_torch() -> None:
    covariance = blended(0.5).between(ALL, ALL)
    y = torch.rand(12, dtype=torch.float64, generator=GENERATOR)
    normal = torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance)
    torch.testing.assert_close(gaussian_nll(covariance, y), -normal.log_prob(y))
