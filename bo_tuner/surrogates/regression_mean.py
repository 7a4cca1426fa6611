"""The prior mean in closed form: a kernel regression over tasks, config by config.

What a config is worth on a new task is an average of what it was worth on the source tasks, weighted by how near they
are. Near is told by descriptors of a task: log2 of its sizes and of the device's multiprocessors, and the physical
features that are the same for all its configs. This is what a GP over tasks and configs with a separable covariance
comes to where every task has timed every config (Nadaraya and Watson's form of it, which takes missing ones). The
metric is a linear map of the descriptors, learned by leaving one shape out after the other (Weinberger and Tesauro,
2007, "Metric learning for kernel regression").
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bo_tuner.space import Pool
from bo_tuner.storage.alignment import align, find_codes, pool_codes
from bo_tuner.surrogates.base import Progress
from bo_tuner.surrogates.features import PARAMETER_PREFIX
from bo_tuner.surrogates.prior_mean import Examples, Floats, Parts, Precision, folds, importance, outside
from bo_tuner.task import Task

#: A config that no near task has is taken to be as good as this quantile of the configs of those tasks.
LOW = 0.25

_ARRAYS = ("codes", "values", "constants", "descriptors", "metric")


@dataclass(frozen=True)
class RegressionOptions:
    """How the metric is learned.

    Args:
        n_folds: folds of whole tasks for the left-out predictions, at least 2 (fewer if there are fewer groups).
        n_configs: configs that the metric is learned from, drawn from all.
        n_steps: steps of Adam.
        learning_rate: of Adam.
        first_scale: the metric before the first step, 1 / log2 units.
        penalty: of the squared distance of the metric from the first.
        floor: log(best / time) is clipped here; how bad a very bad config is does not matter.
        weight_power: weight of a config is efficiency to this power, plus 0.05.
        seed: of folds and of the choice of configs.
    """

    n_folds: int = 5
    n_configs: int = 1024
    n_steps: int = 100
    learning_rate: float = 0.05
    first_scale: float = 0.5
    penalty: float = 1e-4
    floor: float = -3.0
    weight_power: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class RegressionMean:
    """Kernel regression over source tasks.

    Args:
        codes: codes of all configs that any source has, ascending, ``[n_codes]``.
        values: log(best / time), ``[n_tasks, n_codes]`` float16; NaN where it is not known.
        constants: which features are descriptors, ``[n_constants]``.
        descriptors: of the source tasks, ``[n_tasks, n_descriptors]``.
        metric: nearness of two tasks is exp(-|difference of descriptors · metric|²), ``[n_descriptors, n_axes]``.
        shrinkage: weight of the low value beside weights of tasks that sum to 1.
    """

    codes: NDArray[np.int64]
    values: NDArray[np.float16]
    constants: NDArray[np.int64]
    descriptors: Floats
    metric: Floats
    shrinkage: float

    def predict(self, pool: Pool, features: Floats, precision: Precision = "search") -> Floats:
        """Prior mean of log(best / time), shape ``[n]``."""
        return self.at(_descriptors(pool.task, features, self.constants), pool_codes(pool))

    def at(self, descriptor: Floats, codes: NDArray[np.int64]) -> Floats:
        """The same, given the descriptors ``[n_descriptors]`` and the codes ``[n]``."""
        place = find_codes(self.codes, codes)
        values = np.where(place >= 0, self.values[:, place].astype(np.float64), np.nan)
        logits = -(((self.descriptors - descriptor) @ self.metric) ** 2).sum(axis=1)
        weights = np.exp(logits - logits.max())
        weights = weights / weights.sum()
        known = ~np.isnan(values)
        low = float(weights @ self._low)
        total = weights @ np.where(known, values, 0.0) + self.shrinkage * low
        mean: Floats = total / (weights @ known + self.shrinkage)
        return mean

    @functools.cached_property
    def _low(self) -> Floats:
        return _low(self.values)

    def to_checkpoint(self) -> Parts:
        """The fields as arrays."""
        return Parts({name: getattr(self, name) for name in _ARRAYS} | {"shrinkage": np.array([self.shrinkage])})

    @classmethod
    def from_checkpoint(cls, parts: Parts) -> RegressionMean:
        """Inverse of :meth:`to_checkpoint`."""
        codes, values, constants, descriptors, metric = (parts.arrays[name] for name in _ARRAYS)
        return cls(codes, values, constants, descriptors, metric, float(parts.arrays["shrinkage"][0]))


def fit_regression_mean(
    examples: Examples, groups: Sequence[str], options: RegressionOptions, progress: Progress | None = None
) -> tuple[RegressionMean, list[Floats]]:
    """Cross-fit the regression; see :class:`~bo_tuner.surrogates.prior_mean.FitMean`.

    The metric of a fold is learned without that fold, and always by leaving shapes out, whatever the groups are.
    """
    constants = _constants(examples)
    described = [_descriptors(*pair, constants) for pair in zip(examples.tasks, examples.features, strict=True)]
    descriptors = np.array(described)
    codes, values = align(examples.codes, [np.maximum(target, options.floor) for target in examples.targets])
    stored = values.astype(np.float16)
    shapes = np.array([task.shape_key for task in examples.tasks])

    def fitted(rows: Sequence[int]) -> RegressionMean:
        metric, shrinkage = _fit_metric(descriptors[rows], stored[rows], shapes[rows], options)
        return RegressionMean(codes, stored[rows], constants, descriptors[rows], metric, shrinkage)

    fold_of = folds(groups, options.n_folds, options.seed)
    n_folds = max(fold_of) + 1
    left_out = [np.empty(0)] * len(examples)
    for fold in range(n_folds):
        mean = fitted(outside(fold_of, fold))
        for task in (task for task, own in enumerate(fold_of) if own == fold):
            left_out[task] = mean.at(descriptors[task], examples.codes[task])
        if progress is not None:
            progress("prior mean", (fold + 1) / (n_folds + 1))
    whole = fitted(range(len(examples)))
    if progress is not None:
        progress("prior mean", 1.0)
    return whole, left_out


def _constants(examples: Examples) -> NDArray[np.int64]:
    """The physical features that are the same for all configs of each source task."""
    same = [name for name in range(len(examples.names)) if not examples.names[name].startswith(PARAMETER_PREFIX)]
    for features in examples.features:
        same = [at for at in same if np.ptp(features[:, at]) == 0]
    return np.array(same, dtype=np.int64)


def _descriptors(task: Task, features: Floats, constants: NDArray[np.int64]) -> Floats:
    sizes = np.log2(np.array([*task.shape.values(), task.device.n_sms], dtype=np.float64))
    return np.concatenate([sizes, features[0, constants]])


def _low(values: NDArray[np.float16]) -> Floats:
    """A low value of each task, ``[n_tasks]``."""
    return np.nanquantile(values.astype(np.float64), LOW, axis=1)


def _fit_metric(
    descriptors: Floats, values: NDArray[np.float16], shapes: NDArray[np.str_], options: RegressionOptions
) -> tuple[Floats, float]:
    """Metric and shrinkage with the least weighted squared error when every task is told by the other shapes."""
    rng = np.random.default_rng(options.seed)
    chosen = np.sort(rng.permutation(values.shape[1])[: options.n_configs])
    y = values[:, chosen].astype(np.float64)
    known = torch.as_tensor(~np.isnan(y), dtype=torch.float32)
    weight = torch.as_tensor(np.nan_to_num(importance(y, options.weight_power)), dtype=torch.float32)
    target, low = (
        torch.as_tensor(np.nan_to_num(y), dtype=torch.float32),
        torch.as_tensor(_low(values), dtype=torch.float32),
    )
    x = torch.as_tensor(descriptors - descriptors.mean(axis=0), dtype=torch.float32)
    own = torch.as_tensor(shapes[:, None] == shapes[None, :])
    first = options.first_scale * torch.eye(x.shape[1])
    metric, log_shrinkage = first.clone().requires_grad_(), torch.tensor(-3.0, requires_grad=True)
    if bool(own.all()):
        return metric.detach().double().numpy(), float(log_shrinkage.detach().exp())
    optimizer = torch.optim.Adam([metric, log_shrinkage], lr=options.learning_rate)
    for _ in range(options.n_steps):
        nearness = torch.softmax(-_squared_distances(x @ metric).masked_fill(own, torch.inf), dim=1)
        shrinkage = log_shrinkage.exp()
        predicted = (nearness @ target + shrinkage * (nearness @ low)[:, None]) / (nearness @ known + shrinkage)
        loss = (weight * (predicted - target).square()).sum() / weight.sum()
        loss = loss + options.penalty * (metric - first).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return metric.detach().double().numpy(), float(log_shrinkage.detach().exp())


def _squared_distances(x: Tensor) -> Tensor:
    norms = x.square().sum(dim=1)
    return norms[:, None] + norms[None, :] - 2 * x @ x.T
