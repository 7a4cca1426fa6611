"""Covariances over a pool: the mixed one over parameters, the empirical one of past residuals, and their blend."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_tuner.space import Parameter


def ordered_dims(parameters: Sequence[Parameter]) -> list[int]:
    """Places of the ordered parameters among all."""
    return [at for at, parameter in enumerate(parameters) if parameter.kind != "categorical"]


def categorical_dims(parameters: Sequence[Parameter]) -> list[int]:
    """Places of the categorical parameters among all."""
    return [at for at, parameter in enumerate(parameters) if parameter.kind == "categorical"]


def mixed_correlation(
    a: Tensor, b: Tensor, ordered: Sequence[int], categorical: Sequence[int], scales: Tensor
) -> Tensor:
    """Matérn-5/2 with a lengthscale a parameter over the ordered ones times exp(-Hamming / l) over the categorical.

    Args:
        a: encoded configs, ``... × n × d``.
        b: encoded configs, ``... × m × d``.
        ordered: places of the ordered parameters in ``d``.
        categorical: places of the categorical ones.
        scales: lengthscales, ``d``.

    Returns:
        Correlations, ``... × n × m``.
    """
    squared = torch.zeros_like(a[..., :, None, 0] - b[..., None, :, 0])
    for at in ordered:  # one dimension after another: no n × m × d array
        squared = squared + (a[..., :, None, at] / scales[at] - b[..., None, :, at] / scales[at]).square()
    mismatch = torch.zeros_like(squared)
    for at in categorical:
        mismatch = mismatch + (a[..., :, None, at] != b[..., None, :, at]) / scales[at]
    r = (5.0 * squared + 1e-12).sqrt()
    return (1.0 + r + r.square() / 3.0) * torch.exp(-r - mismatch)


@dataclass(frozen=True)
class MixedCovariance:
    """sd_i · sd_j · (smooth · mixed correlation + (1 - smooth) · [i = j]) + level.

    Args:
        encoded: encoded configs of the pool, ``N × d``.
        ordered: places of the ordered parameters.
        categorical: places of the categorical ones.
        scales: lengthscales, ``d``.
        sd: standard deviation of every config, ``N``.
        smooth: share of the variance that neighbouring configs share; the rest belongs to the config alone.
        level_variance: variance of what is common to all configs.
    """

    encoded: Tensor
    ordered: Sequence[int]
    categorical: Sequence[int]
    scales: Tensor
    sd: Tensor
    smooth: float = 1.0
    level_variance: float = 0.0

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Covariance of rows ``a`` (``... × n``) with rows ``b`` (``... × m``)."""
        correlation = mixed_correlation(self.encoded[a], self.encoded[b], self.ordered, self.categorical, self.scales)
        correlation = self.smooth * correlation + (1.0 - self.smooth) * _same(a, b)
        return self.sd[a][..., :, None] * self.sd[b][..., None, :] * correlation + self.level_variance

    def with_all(self, a: Tensor) -> Tensor:
        """Covariance of rows ``a`` (``n``) with every row, ``n × N``; the encoded pool is not copied."""
        correlation = mixed_correlation(self.encoded[a], self.encoded, self.ordered, self.categorical, self.scales)
        correlation *= self.smooth
        correlation[torch.arange(len(a)), a] += 1.0 - self.smooth
        correlation *= self.sd[a][:, None]
        correlation *= self.sd
        return correlation + self.level_variance

    def diagonal(self) -> Tensor:
        """Variance of every row, ``N``."""
        return self.sd.square() + self.level_variance


@dataclass(frozen=True)
class EmpiricalCovariance:
    """F Fᵀ + diag(rest): the shrunk covariance of the source tasks' residuals, of rank at most the number of tasks.

    Args:
        factor: F, ``N × n_tasks``, float32, which is twice as fast to read and finer than the residuals are.
        rest: what the factor leaves of each config's variance, ``N``, not negative.
    """

    factor: Tensor
    rest: Tensor

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Covariance of rows ``a`` (``... × n``) with rows ``b`` (``... × m``)."""
        shared = self.factor[a] @ self.factor[b].transpose(-1, -2)
        return shared.double() + _same(a, b) * self.rest[a][..., :, None]

    def with_all(self, a: Tensor) -> Tensor:
        """Covariance of rows ``a`` (``n``) with every row, ``n × N``; the factor, which is large, is not copied."""
        shared: Tensor = (self.factor[a] @ self.factor.T).double()
        shared[torch.arange(len(a)), a] += self.rest[a]
        return shared

    def diagonal(self) -> Tensor:
        """Variance of every row, ``N``."""
        return self.factor.square().sum(-1).double() + self.rest


@dataclass(frozen=True)
class BlendedCovariance:
    """scale · (share · empirical + (1 - share) · mixed) + level.

    Args:
        empirical: covariance of past residuals.
        mixed: covariance over the parameters, without level.
        share: weight of the empirical one, from 0 to 1.
        scale: calibration of the residuals' variance.
        level_variance: variance of the task's unknown level.
    """

    empirical: EmpiricalCovariance
    mixed: MixedCovariance
    share: float
    scale: float
    level_variance: float

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Covariance of rows ``a`` (``... × n``) with rows ``b`` (``... × m``)."""
        return self._blend(lambda part: part.between(a, b))

    def with_all(self, a: Tensor) -> Tensor:
        """Covariance of rows ``a`` (``n``) with every row, ``n × N``."""
        return self._blend(lambda part: part.with_all(a))

    def _blend(self, ask: Callable[[EmpiricalCovariance | MixedCovariance], Tensor]) -> Tensor:
        """The parts that have a weight, and the level."""
        total: Tensor = torch.full((), self.level_variance, dtype=self.mixed.sd.dtype)
        if self.share > 0:
            total = total + self.scale * self.share * ask(self.empirical)
        if self.share < 1:
            total = total + self.scale * (1.0 - self.share) * ask(self.mixed)
        return total

    def diagonal(self) -> Tensor:
        """Variance of every row, ``N``."""
        residual = self.share * self.empirical.diagonal() + (1.0 - self.share) * self.mixed.diagonal()
        return self.scale * residual + self.level_variance


def log_normal_penalty(log_scales: Tensor, location: float, spread: float) -> Tensor:
    """Minus the log density, up to a constant, of log lengthscales under N(location, spread²), summed."""
    return ((log_scales - location) / spread).square().sum() / 2.0


def gaussian_nll(covariance: Tensor, y: Tensor) -> Tensor:
    """Minus log likelihood of zero-mean ``y`` (``... × n``) under ``covariance`` (``... × n × n``), summed."""
    factor = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(factor, y.unsqueeze(-1), upper=False).squeeze(-1)
    log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    nll: Tensor = 0.5 * white.square().sum(-1) + log_det + 0.5 * y.shape[-1] * math.log(2 * math.pi)
    return nll.sum()


def _same(a: Tensor, b: Tensor) -> Tensor:
    return (a[..., :, None] == b[..., None, :]).to(torch.float64)
