"""The kinds of prior mean, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bo_tuner.errors import UserError
from bo_tuner.surrogates.mlp_mean import MLPMean, MLPOptions, fit_mlp_mean
from bo_tuner.surrogates.prior_mean import FitMean, NoMean, NoOptions, Parts, PriorMean, fit_no_mean
from bo_tuner.surrogates.regression_mean import RegressionMean, RegressionOptions, fit_regression_mean
from bo_tuner.surrogates.tree_mean import TreeMean, TreeOptions, fit_tree_mean


@dataclass(frozen=True)
class MeanKind:
    """One kind of prior mean.

    Args:
        options: dataclass of how it is fitted, every field with a default.
        fit: fits one.
        load: makes one of what a checkpoint kept.
    """

    options: Callable[..., Any]
    fit: FitMean
    load: Callable[[Parts], PriorMean]


_KINDS: dict[str, MeanKind] = {
    "trees": MeanKind(TreeOptions, fit_tree_mean, TreeMean.from_checkpoint),
    "mlp": MeanKind(MLPOptions, fit_mlp_mean, MLPMean.from_checkpoint),
    "kernel_regression": MeanKind(RegressionOptions, fit_regression_mean, RegressionMean.from_checkpoint),
    "none": MeanKind(NoOptions, fit_no_mean, NoMean.from_checkpoint),
}


def mean_names() -> list[str]:
    """Names that :func:`mean_kind` knows."""
    return sorted(_KINDS)


def mean_kind(name: str) -> MeanKind:
    """A kind of prior mean.

    Raises:
        UserError: there is no such kind.
    """
    if name not in _KINDS:
        raise UserError(f"mean: {name!r} is not one of {', '.join(mean_names())}")
    return _KINDS[name]


def mean_options(name: str, options: Mapping[str, Any]) -> Any:
    """How a kind of prior mean is fitted; ``options`` are what differs from the default.

    Raises:
        UserError: there is no such kind, or it has no such option.
    """
    try:
        return mean_kind(name).options(**options)
    except TypeError as error:
        raise UserError(f"mean_options: {name}: {error}") from None
