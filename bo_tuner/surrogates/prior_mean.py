"""What a prior mean is: a prediction of log(best / time) of every config of a task of which nothing was timed.

A prior mean is fitted with cross-fitting over groups of tasks: every source task also gets a prediction by a model that
never saw it, and what that leaves is what the covariance models. ``means.py`` knows all kinds by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from bo_tuner.space import Pool
from bo_tuner.surrogates.base import Progress
from bo_tuner.task import Task

Floats = NDArray[np.float64]

#: How well a row is told. ``exact``: all alike. ``search``: rows that no search would try may be told roughly.
#: ``choice``: only the fastest few dozen are told well, which is all that a choice without trials needs.
Precision = Literal["exact", "search", "choice"]


@dataclass(frozen=True)
class Examples:
    """What a prior mean learns from; every sequence has one entry a source task.

    Args:
        tasks: the tasks.
        codes: code of every config (:func:`~bo_tuner.storage.alignment.pool_codes`), ``[n_configs]``.
        features: design matrices, ``[n_configs, d]``.
        targets: log(best / time), ``[n_configs]``; NaN where a config is not correct.
        names: names of the ``d`` features.
    """

    tasks: Sequence[Task]
    codes: Sequence[NDArray[np.int64]]
    features: Sequence[Floats]
    targets: Sequence[Floats]
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.tasks)


@dataclass(frozen=True)
class Parts:
    """What a checkpoint keeps of a prior mean: arrays by name and long texts in order."""

    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    texts: Sequence[str] = ()


class PriorMean(Protocol):
    """A fitted prior mean. Predictions are the same before and after a checkpoint."""

    def predict(self, pool: Pool, features: Floats, precision: Precision = "search") -> Floats:
        """log(best / time) of every config, shape ``[n]``, given the pool and its design matrix ``[n, d]``."""
        ...

    def to_checkpoint(self) -> Parts:
        """All that :meth:`from_checkpoint` needs."""
        ...

    @classmethod
    def from_checkpoint(cls, parts: Parts) -> Self:
        """Inverse of :meth:`to_checkpoint`; raises ``KeyError`` with the name of an array that is not there."""
        ...


class FitMean(Protocol):
    """Fits one kind of prior mean."""

    def __call__(
        self, examples: Examples, groups: Sequence[str], options: Any, progress: Progress | None = None
    ) -> tuple[PriorMean, list[Floats]]:
        """Fit with cross-fitting.

        Args:
            examples: the source tasks.
            groups: one a task; tasks of one group (the same shape on two devices) are left out together.
            options: of the kind's own class.
            progress: told the share that is done.

        Returns:
            The prior mean for new tasks, and for each source task the prediction of a model that did not see its group
            (of one that saw everything if there is one group only).
        """
        ...


@dataclass(frozen=True)
class NoOptions:
    """Nothing can be chosen."""


class NoMean:
    """Zero everywhere: what is left for the covariance is whole log efficiencies (an ablation)."""

    def predict(self, pool: Pool, features: Floats, precision: Precision = "search") -> Floats:
        """Zeros, shape ``[n]``."""
        return np.zeros(len(features))

    def to_checkpoint(self) -> Parts:
        """Nothing."""
        return Parts()

    @classmethod
    def from_checkpoint(cls, parts: Parts) -> NoMean:
        """Inverse of :meth:`to_checkpoint`."""
        return cls()


def fit_no_mean(
    examples: Examples, groups: Sequence[str], options: NoOptions, progress: Progress | None = None
) -> tuple[NoMean, list[Floats]]:
    """See :class:`FitMean`."""
    return NoMean(), [np.zeros(len(codes)) for codes in examples.codes]


def folds(groups: Sequence[str], n_folds: int, seed: int) -> list[int]:
    """A fold for every task, ``n_folds`` at most; groups stay together and depend on nothing but names and seed."""
    distinct = sorted(set(groups))
    n_folds = max(1, min(n_folds, len(distinct)))
    shuffled = np.random.default_rng(seed).permutation(len(distinct))
    fold_of = {distinct[at]: place % n_folds for place, at in enumerate(shuffled)}
    return [fold_of[group] for group in groups]


def outside(fold_of: Sequence[int], fold: int) -> list[int]:
    """The tasks that train the model of a fold: all others; every task if there is one fold only."""
    return [task for task, own in enumerate(fold_of) if own != fold] or list(range(len(fold_of)))


def importance(target: Floats, power: float) -> Floats:
    """Weight of every config: its efficiency to a power, plus a little, since a bad config has to be known as bad."""
    return np.exp(power * target) + 0.05
