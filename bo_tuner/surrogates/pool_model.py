"""A BoTorch model over a finite pool: mean and covariance are looked up by row number.

Column 0 of every input is the row of the pool, the other columns are the row's encoded parameters (they take no part
in the look-up; they are there so that the inputs mean something to whoever inspects the model). Everything is float64.
"""

from __future__ import annotations

from typing import Any, Protocol

import gpytorch
import numpy as np
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models import SingleTaskGP
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from numpy.typing import NDArray
from torch import Tensor

from bo_tuner.space import Pool

#: Readings are never trusted more than this (variance of log time): keeps the covariance well conditioned.
MIN_NOISE = 1e-6


class PoolCovariance(Protocol):
    """Prior covariance between rows of one pool."""

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Covariance of rows ``a`` (``... × n``) with rows ``b`` (``... × m``): ``... × n × m``."""
        ...

    def with_all(self, a: Tensor) -> Tensor:
        """Covariance of rows ``a`` (``n``) with every row: ``n × N``."""
        ...

    def diagonal(self) -> Tensor:
        """Variance of every row, shape ``N``."""
        ...


class RememberedCovariance:
    """A covariance that keeps what it told: a run asks for its observed rows again after every trial.

    Args:
        covariance: the one that is asked the first time.
    """

    def __init__(self, covariance: PoolCovariance) -> None:
        self._covariance = covariance
        self._diagonal = covariance.diagonal()
        self._told: dict[int, Tensor] = {}

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Covariance of rows ``a`` (``... × n``) with rows ``b`` (``... × m``): ``... × n × m``; not kept."""
        return self._covariance.between(a, b)

    def with_all(self, a: Tensor) -> Tensor:
        """Covariance of rows ``a`` (``n``) with every row: ``n × N``."""
        rows = a.tolist()
        for row in rows:  # one by one: of several at once, the sums would be rounded otherwise
            if row not in self._told:
                self._told[row] = self._covariance.with_all(torch.tensor([row]))[0]
        return torch.stack([self._told[row] for row in rows])

    def diagonal(self) -> Tensor:
        """Variance of every row, shape ``N``."""
        return self._diagonal


class TableMean(gpytorch.means.Mean):  # type: ignore[misc]
    """Prior mean looked up by row: ``... × n × (1 + d)`` → ``... × n``."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values)

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.values
        return values[x[..., 0].long()]


class TableCovariance(gpytorch.kernels.Kernel):  # type: ignore[misc]
    """A :class:`PoolCovariance` as a GPyTorch kernel."""

    has_lengthscale = False

    def __init__(self, covariance: PoolCovariance) -> None:
        super().__init__()
        self.covariance = covariance

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        a, b = x1[..., 0].long(), x2[..., 0].long()
        return self.covariance.diagonal()[a] if diag else self.covariance.between(a, b)


class PoolGP(SingleTaskGP):  # type: ignore[misc]
    """Exact GP over a pool with fixed hyperparameters.

    A posterior of single points (``b × 1 × (1 + d)``, what BoTorch's analytic acquisitions ask for) is read from
    vectors computed once; any other goes the general way of GPyTorch. Both give the same numbers.

    Args:
        inputs: the pool, ``N × (1 + d)``, see :func:`pool_inputs`.
        mean: prior mean of every row, ``N``.
        covariance: prior covariance.
        rows: observed rows, ``n``, n ≥ 1.
        y: observations, ``n``.
        noise: their noise variances, ``n``.
    """

    def __init__(
        self, inputs: Tensor, mean: Tensor, covariance: PoolCovariance, rows: Tensor, y: Tensor, noise: Tensor
    ) -> None:
        noise = noise.clamp_min(MIN_NOISE)
        super().__init__(
            train_X=inputs[rows],
            train_Y=y.unsqueeze(-1),
            train_Yvar=noise.unsqueeze(-1),
            mean_module=TableMean(mean),
            covar_module=TableCovariance(covariance),
            outcome_transform=None,
            input_transform=None,
        )
        self.eval()
        cross = covariance.with_all(rows)
        factor = torch.linalg.cholesky(cross[:, rows] + torch.diag(noise))
        inverse = torch.linalg.solve_triangular(factor, torch.eye(len(rows), dtype=factor.dtype), upper=False)
        whitened = inverse @ cross  # half the time of solving for the whole pool
        residual = inverse @ (y - mean[rows]).unsqueeze(-1)
        self.reading_variance = float(noise.mean())
        self.pool_inputs = inputs
        self.observed = rows
        #: What every observation adds per unit of prior covariance with it: (K + noise)⁻¹ (y - mean), ``n``.
        self.weights = (inverse.T @ residual).squeeze(-1)
        self._whitened = whitened
        self.pool_mean = mean + (residual.T @ whitened).squeeze(0)
        self.pool_variance = (covariance.diagonal() - (whitened * whitened).sum(0)).clamp_min(1e-12)

    def joint(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean ``m`` and covariance ``m × m`` of some rows ``m``, without the detour over GPyTorch."""
        whitened = self._whitened[:, rows]
        prior = self.covar_module.covariance.between(rows, rows)
        return self.pool_mean[rows], prior - whitened.T @ whitened

    def predict(self, row: int) -> tuple[float, float]:
        """Mean and standard deviation of the next reading of a row, y = -log(time); as noisy as those so far."""
        return float(self.pool_mean[row]), float(self.pool_variance[row] + self.reading_variance) ** 0.5

    def posterior(
        self, X: Tensor, *args: Any, posterior_transform: PosteriorTransform | None = None, **kwargs: Any
    ) -> Any:
        """Posterior at ``X``, ``... × q × (1 + d)``."""
        if X.shape[-2] != 1 or args or any(kwargs.values()):
            return super().posterior(X, *args, posterior_transform=posterior_transform, **kwargs)
        rows = X[..., 0].long()
        # As an operator: of plain matrices, torch would make a Cholesky factor each.
        found = MultivariateNormal(self.pool_mean[rows], DiagLinearOperator(self.pool_variance[rows]))
        single = GPyTorchPosterior(found)
        return single if posterior_transform is None else posterior_transform(single)


def pool_inputs(pool: Pool) -> Tensor:
    """Row number and encoded parameters of every config: ``len(pool) × (1 + n_parameters)``."""
    return as_tensor(np.column_stack([np.arange(len(pool)), pool.encoded]))


def as_tensor(values: NDArray[Any]) -> Tensor:
    """The float64 tensor of an array."""
    return torch.as_tensor(np.ascontiguousarray(values, dtype=np.float64))
