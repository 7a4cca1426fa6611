"""A Gaussian process that has seen nothing but the trials of this run: the fair baseline without transfer.

Mixed covariance (Matérn-5/2 over ordered parameters, Hamming over categorical ones) with the dimension-scaled
log-normal lengthscale prior of Hvarfner et al. (2024, "Vanilla Bayesian optimization performs great in high
dimensions"); hyperparameters by a few L-BFGS steps on the posterior (MAP) at every fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import Pool
from bo_tuner.storage.tables import TaskTable
from bo_tuner.study import Trial
from bo_tuner.surrogates.base import Progress, observations
from bo_tuner.surrogates.covariance import (
    MixedCovariance,
    categorical_dims,
    gaussian_nll,
    log_normal_penalty,
    mixed_correlation,
    ordered_dims,
)
from bo_tuner.surrogates.pool_model import PoolGP, as_tensor, pool_inputs

#: Standard deviation of log time over a pool before anything is known (fast and slow configs differ by a factor of 4).
PRIOR_SD = 0.7


class ColdGP:
    """A GP without sources.

    Args:
        noise_sd: standard deviation of one reading's log time.
        n_steps: L-BFGS steps a fit; 0 keeps the prior's modes.

    Raises:
        UserError: an argument is negative.
    """

    def __init__(self, *, noise_sd: float = 0.02, n_steps: int = 12) -> None:
        if noise_sd < 0:
            raise UserError(f"noise_sd: {noise_sd} is negative")
        if n_steps < 0:
            raise UserError(f"n_steps: {n_steps} is negative")
        self.noise_sd = noise_sd
        self.n_steps = n_steps

    def meta_fit(self, sources: Sequence[TaskTable], spec: KernelSpec, progress: Progress | None = None) -> Self:
        """Learns nothing."""
        return self

    def prior_mean(self, pool: Pool) -> NDArray[np.float64]:
        """Zero everywhere, shape ``[len(pool)]``."""
        return np.zeros(len(pool))

    def fit(self, pool: Pool, trials: Sequence[Trial]) -> PoolGP:
        """A model of y = -log(time in µs) given the trials.

        Raises:
            ValueError: no trial is correct.
        """
        rows, y, counts = observations(pool, trials)
        encoded = _unit_cube(pool)
        centred, noise = as_tensor(y - y.mean()), as_tensor(self.noise_sd**2 / counts)
        at, ordered, categorical = torch.as_tensor(rows), *_dims(pool)
        scales, sd = self._map_estimate(encoded[at], centred, noise, ordered, categorical)
        covariance = MixedCovariance(
            encoded, ordered, categorical, scales, torch.full((len(pool),), sd, dtype=torch.float64), 1.0, sd**2
        )
        mean = torch.full((len(pool),), float(y.mean()), dtype=torch.float64)
        return PoolGP(pool_inputs(pool), mean, covariance, at, as_tensor(y), noise)

    def _map_estimate(
        self, x: Tensor, y: Tensor, noise: Tensor, ordered: Sequence[int], categorical: Sequence[int]
    ) -> tuple[Tensor, float]:
        """Lengthscales ``[d]`` and standard deviation of the signal."""
        n_dims = x.shape[-1]
        location, spread = math.sqrt(2.0) + math.log(n_dims) / 2.0, math.sqrt(3.0)
        start = np.append(np.full(n_dims, location - spread**2), math.log(PRIOR_SD))

        def loss(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            theta = torch.tensor(values, requires_grad=True)
            variance = (2.0 * theta[-1]).exp()
            correlation = mixed_correlation(x, x, ordered, categorical, theta[:-1].exp())
            # One more variance is the unknown level, as in the model itself.
            covariance = variance * (correlation + 1.0) + torch.diag(noise + 1e-6)
            # The sum is the log-normal density's 1 / l: its mode is at exp(location - spread²).
            total = gaussian_nll(covariance, y) + log_normal_penalty(theta[:-1], location, spread) + theta[:-1].sum()
            total = total + log_normal_penalty(theta[-1:], math.log(PRIOR_SD), 0.5)
            total.backward()
            assert theta.grad is not None
            return float(total.detach()), theta.grad.numpy()

        if self.n_steps and len(y) > 1:
            bounds = [(-3.0, 6.0)] * n_dims + [(-4.0, 1.5)]
            options = {"maxiter": self.n_steps, "maxfun": 2 * self.n_steps}
            start = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        return torch.as_tensor(np.exp(start[:-1])), float(np.exp(start[-1]))


def _unit_cube(pool: Pool) -> Tensor:
    """Encoded configs with every ordered parameter stretched to [0, 1], ``N × d``."""
    encoded = pool.encoded.copy()
    for at in ordered_dims(pool.parameters):
        low, high = encoded[:, at].min(), encoded[:, at].max()
        encoded[:, at] = (encoded[:, at] - low) / max(high - low, 1e-12)
    return as_tensor(encoded)


def _dims(pool: Pool) -> tuple[list[int], list[int]]:
    return ordered_dims(pool.parameters), categorical_dims(pool.parameters)
