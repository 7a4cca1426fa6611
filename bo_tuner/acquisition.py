"""Which config to try next: a BoTorch acquisition function over the whole pool, by name.

The pool is finite, so nothing is optimised: every untried row is scored and the best one taken. Tried rows are masked
by their number (BoTorch's ``X_avoid`` compares floats). Equal scores go to the higher prior mean, then the lower row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import (
    ExpectedImprovement,
    LogExpectedImprovement,
    PosteriorMean,
    ProbabilityOfImprovement,
    UpperConfidenceBound,
)
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.warnings import NumericsWarning
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.sampling import manual_seed
from gpytorch.distributions import MultivariateNormal
from numpy.typing import NDArray
from torch import Tensor

from bo_tuner.errors import UserError


class Widened(PosteriorTransform):  # type: ignore[misc]
    """A posterior whose standard deviations are multiplied by a factor, its mean as it is.

    Args:
        factor: over 1 looks more where the model is unsure, which guards a search against a model that is too sure.
    """

    scalarize = False

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def evaluate(self, Y: Tensor) -> Tensor:
        """Outcomes are what they were."""
        return Y

    def forward(self, posterior: GPyTorchPosterior, X: Tensor | None = None) -> GPyTorchPosterior:
        """The widened posterior."""
        found = posterior.distribution
        widened = found.lazy_covariance_matrix * self.factor**2
        return GPyTorchPosterior(MultivariateNormal(found.mean, widened))


#: (model, best observed y, what is done to the posterior) → acquisition function.
_BUILDERS: dict[str, Callable[[Model, float, Widened], AcquisitionFunction]] = {
    "log_ei": lambda model, best, widened: LogExpectedImprovement(model, best, posterior_transform=widened),
    "ei": lambda model, best, widened: ExpectedImprovement(model, best, posterior_transform=widened),
    "pi": lambda model, best, widened: ProbabilityOfImprovement(model, best, posterior_transform=widened),
    "ucb": lambda model, best, widened: UpperConfidenceBound(model, beta=1.0, posterior_transform=widened),
    "posterior_mean": lambda model, best, widened: PosteriorMean(model, posterior_transform=widened),
}

#: Joint sampling is cubic in the number of rows; Thompson sampling looks at so many rows, those with the highest bound.
N_THOMPSON_ROWS = 512


def acquisition_names() -> list[str]:
    """Names that :func:`score` knows."""
    return sorted([*_BUILDERS, "thompson"])


def check_acquisition(name: str) -> str:
    """The name itself.

    Raises:
        UserError: there is no such acquisition.
    """
    if name not in acquisition_names():
        raise UserError(f"acquisition: {name!r} is not one of {', '.join(acquisition_names())}")
    return name


def score(
    name: str, model: Model, inputs: Tensor, best: float, seed: int = 0, exploration: float = 1.0
) -> NDArray[np.float64]:
    """Acquisition value of every row, larger is better.

    Args:
        name: one of :func:`acquisition_names`.
        model: a BoTorch model with one output, y = -log(time).
        inputs: the pool, ``N × (1 + d)``.
        best: largest y observed.
        seed: of the sample, for ``thompson``.
        exploration: what the model's standard deviations are multiplied by first.

    Returns:
        Shape ``[N]``; -inf where the value is not a number.

    Raises:
        UserError: there is no such acquisition.
    """
    check_acquisition(name)
    with torch.no_grad(), warnings.catch_warnings():
        # Plain EI and PI are here to be compared with; BoTorch rightly advises against EI.
        warnings.simplefilter("ignore", NumericsWarning)
        if name == "thompson":
            values = _thompson(model, inputs, seed, Widened(exploration))
        else:
            values = _BUILDERS[name](model, best, Widened(exploration))(inputs.unsqueeze(-2))
    scores: NDArray[np.float64] = values.numpy().astype(np.float64)
    return np.where(np.isnan(scores), -np.inf, scores)


def choose(scores: NDArray[np.float64], prior_mean: NDArray[np.float64], allowed: NDArray[np.bool_]) -> int:
    """The allowed row with the highest score; ties go to the higher prior mean, then to the lower row.

    Raises:
        ValueError: no row is allowed.
    """
    rows = np.flatnonzero(allowed)
    if not len(rows):
        raise ValueError("no row is allowed")
    equal = rows[scores[rows] == scores[rows].max()]
    return int(equal[np.argmax(prior_mean[equal])])


def _thompson(model: Model, inputs: Tensor, seed: int, widened: Widened) -> Tensor:
    """One joint sample of the posterior over the most promising rows; -inf elsewhere."""
    bound = UpperConfidenceBound(model, beta=9.0)(inputs.unsqueeze(-2))
    rows = torch.argsort(bound, descending=True, stable=True)[:N_THOMPSON_ROWS]
    with manual_seed(seed):
        sample = model.posterior(inputs[rows], posterior_transform=widened).rsample(torch.Size([1]))
    values = torch.full((len(inputs),), -torch.inf, dtype=inputs.dtype)
    values[rows] = sample[0, :, 0]
    return values
