"""The prior mean of small neural networks: from the design matrix to log(best / time), one network a fold of tasks.

All networks are trained at once as one batched product. Every step draws configs in proportion to their weight, so the
loss has no weights and training time does not grow with the tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bo_tuner.space import Pool
from bo_tuner.surrogates.base import Progress
from bo_tuner.surrogates.prior_mean import Examples, Floats, Parts, Precision, folds, importance, outside

#: Standardised features end here: a device unlike all sources must not drive a network far out of what it has seen.
FAR = 4.0


@dataclass(frozen=True)
class MLPOptions:
    """How the networks are trained.

    Args:
        n_folds: folds of whole tasks, at least 2 (fewer if there are fewer groups); a network each.
        n_hidden: units of each of the two hidden layers.
        n_steps: steps of AdamW, its rate falling to 0 along a cosine.
        n_batch: configs a step and network.
        learning_rate: at the start.
        weight_decay: of AdamW; large, since few shapes can tell that many features apart.
        floor: log(best / time) is clipped here; how bad a very bad config is does not matter.
        weight_power: weight of a config is efficiency to this power, plus 0.05.
        seed: of folds, first weights and batches.
    """

    n_folds: int = 5
    n_hidden: int = 128
    n_steps: int = 3000
    n_batch: int = 1024
    learning_rate: float = 3e-3
    weight_decay: float = 1.0
    floor: float = -3.0
    weight_power: float = 1.0
    seed: int = 0


class MLPMean:
    """Average of networks with two hidden layers.

    Args:
        centre: of each feature, ``[d]``.
        width: of each feature, ``[d]``.
        weights: of the three layers, float32 ``[n_networks, n_inputs, n_outputs]``.
        biases: likewise, ``[n_networks, 1, n_outputs]``.
    """

    def __init__(self, centre: Floats, width: Floats, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
        self.centre, self.width = centre, width
        self.weights, self.biases = tuple(weights), tuple(biases)

    def predict(self, pool: Pool, features: Floats, precision: Precision = "search") -> Floats:
        """Prior mean of log(best / time), shape ``[n]``, of features ``[n, d]``."""
        mean: Floats = self.of_each(features).mean(axis=0)
        return mean

    def of_each(self, features: Floats) -> Floats:
        """What every network says, ``[n_networks, n]``."""
        with torch.no_grad():
            x = _standardised(features, self.centre, self.width)
            return _forward(x.expand(len(self.weights[0]), -1, -1), self.weights, self.biases).double().numpy()

    def to_checkpoint(self) -> Parts:
        """Weights as arrays."""
        arrays: dict[str, NDArray[np.generic]] = {"centre": self.centre, "width": self.width}
        for at, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays |= {f"weight_{at}": weight.numpy(), f"bias_{at}": bias.numpy()}
        return Parts(arrays)

    @classmethod
    def from_checkpoint(cls, parts: Parts) -> MLPMean:
        """Inverse of :meth:`to_checkpoint`."""
        weights, biases = ([torch.tensor(parts.arrays[f"{what}_{at}"]) for at in range(3)] for what in _LAYER)
        return cls(parts.arrays["centre"], parts.arrays["width"], weights, biases)


_LAYER = ("weight", "bias")


def fit_mlp_mean(
    examples: Examples, groups: Sequence[str], options: MLPOptions, progress: Progress | None = None
) -> tuple[MLPMean, list[Floats]]:
    """Cross-fit the networks; see :class:`~bo_tuner.surrogates.prior_mean.FitMean`."""
    fold_of = folds(groups, options.n_folds, options.seed)
    # Features are known before anything is timed, so all tasks may set their scale. A feature that is the same in all
    # sources keeps its own units: divided by almost nothing, any other value would be infinitely far.
    stacked = np.concatenate(examples.features)
    centre, width = stacked.mean(axis=0), stacked.std(axis=0)
    width = np.where(width > 1e-6, width, 1.0)
    x = _standardised(stacked, centre, width)
    target = np.maximum(np.concatenate(examples.targets), options.floor)
    y = torch.as_tensor(np.nan_to_num(target), dtype=torch.float32)
    batches = [_Batches(examples, outside(fold_of, fold), options, fold) for fold in range(max(fold_of) + 1)]
    weights, biases = _first_weights(x.shape[1], options, len(batches))
    optimizer = torch.optim.AdamW([*weights, *biases], lr=options.learning_rate, weight_decay=options.weight_decay)
    for step in range(options.n_steps):
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * 0.5 * (1 + math.cos(math.pi * step / options.n_steps))
        rows = torch.as_tensor(np.stack([batch.draw() for batch in batches]))
        loss = (_forward(x[rows], weights, biases) - y[rows]).square().mean(dim=1).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if progress is not None and (step + 1) % max(options.n_steps // 5, 1) == 0:
            progress("prior mean", (step + 1) / options.n_steps)
    mean = MLPMean(centre, width, [weight.detach() for weight in weights], [bias.detach() for bias in biases])
    left_out = [mean.of_each(own)[fold] for fold, own in zip(fold_of, examples.features, strict=True)]
    return mean, left_out


class _Batches:
    """Random rows of the stacked tables, of the tasks of one fold only, in proportion to their weight."""

    def __init__(self, examples: Examples, train: Sequence[int], options: MLPOptions, fold: int) -> None:
        self.rng, self.n = np.random.default_rng([options.seed, fold]), options.n_batch
        parts = [np.zeros(len(target)) for target in examples.targets]
        for task in train:
            target = np.maximum(examples.targets[task], options.floor)
            # Every task weighs the same, however large its pool.
            parts[task] = np.nan_to_num(importance(target, options.weight_power)) / len(target)
        self.rows = np.flatnonzero(np.concatenate(parts))
        self.cumulated = np.cumsum(np.concatenate(parts)[self.rows])

    def draw(self) -> NDArray[np.int64]:
        """The next batch, ``[n_batch]``."""
        at = np.searchsorted(self.cumulated, self.rng.random(self.n) * self.cumulated[-1], side="right")
        drawn: NDArray[np.int64] = self.rows[np.minimum(at, len(self.rows) - 1)]
        return drawn


def _standardised(features: Floats, centre: Floats, width: Floats) -> Tensor:
    return torch.as_tensor(np.clip((features - centre) / width, -FAR, FAR), dtype=torch.float32)


def _first_weights(n_features: int, options: MLPOptions, n_networks: int) -> tuple[list[Tensor], list[Tensor]]:
    """He's normal weights and biases of 0, each network from its own seed."""
    sizes = [n_features, options.n_hidden, options.n_hidden, 1]
    rngs = [np.random.default_rng([options.seed, fold, 1]) for fold in range(n_networks)]
    weights, biases = [], []
    for n_in, n_out in itertools.pairwise(sizes):
        first = np.stack([rng.standard_normal((n_in, n_out)) for rng in rngs]) * np.sqrt((2 if n_out > 1 else 1) / n_in)
        weights.append(torch.tensor(first, dtype=torch.float32, requires_grad=True))
        biases.append(torch.zeros(n_networks, 1, n_out, requires_grad=True))
    return weights, biases


def _forward(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Outputs ``[n_networks, n]`` of inputs ``[n_networks, n, d]``."""
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = torch.relu(torch.baddbmm(bias, x, weight))
    return torch.baddbmm(biases[-1], x, weights[-1]).squeeze(-1)
