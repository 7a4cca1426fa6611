"""The prior mean of boosted trees: LightGBM from physical features to log(best / time), a model for each fold of tasks.

The trees of all folds are averaged for a new task (a bagging over tasks).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bo_tuner.errors import UserError
from bo_tuner.space import Pool
from bo_tuner.surrogates.base import Progress
from bo_tuner.surrogates.prior_mean import Examples, Floats, Parts, Precision, folds, importance, outside

if TYPE_CHECKING:
    import lightgbm


#: Cascades: up to a share of the trees, how many rows go on to them, and at least what share of all rows; the trees so
#: far tell which. The one for a choice takes a fifth of the time of all trees on all rows and tells the same fastest 20
#: configs; what it tells of others is too rough for a search, which then misses the best config of some tasks.
_CASCADES: dict[Precision, tuple[tuple[float, int, float], ...]] = {
    "exact": ((1.0, 0, 1.0),),
    "search": ((0.08, 0, 1.0), (0.3, 1024, 0.15), (1.0, 384, 0.0)),
    "choice": ((0.04, 0, 1.0), (0.1, 768, 0.0), (0.25, 384, 0.0), (0.5, 160, 0.0), (1.0, 64, 0.0)),
}


@dataclass(frozen=True)
class TreeOptions:
    """How the trees are grown.

    Args:
        n_folds: folds of whole tasks, at least 2 (fewer if there are fewer tasks).
        n_trees: trees a fold.
        learning_rate: shrinkage a tree.
        n_leaves: leaves a tree.
        feature_fraction: share of the features a tree sees.
        floor: log(best / time) is clipped here; how bad a very bad config is does not matter.
        near: configs at or above this efficiency are all kept.
        keep: share of the other configs that is kept (their weight grows in turn); only for speed.
        weight_power: weight of a config is efficiency to this power, plus 0.05.
        n_jobs: folds grown at the same time, one thread each.
        seed: of folds, bagging and thinning.
    """

    n_folds: int = 5
    n_trees: int = 500
    learning_rate: float = 0.07
    n_leaves: int = 127
    feature_fraction: float = 0.4
    floor: float = -3.0
    near: float = 0.6
    keep: float = 0.35
    weight_power: float = 1.0
    n_jobs: int = 2
    seed: int = 0


class TreeMean:
    """Average of boosted trees.

    Args:
        boosters: LightGBM models, at least one.
    """

    def __init__(self, boosters: Sequence[lightgbm.Booster]) -> None:
        self.boosters = tuple(boosters)

    def predict(self, pool: Pool, features: Floats, precision: Precision = "search") -> Floats:
        """Prior mean of log(best / time), shape ``[n]``, of features ``[n, d]``; what it costs is the precision's."""
        mean = np.zeros(len(features))
        rows = np.arange(len(features))
        first, n_trees = 0, self.boosters[0].num_trees()
        with ThreadPoolExecutor(min(len(self.boosters), os.cpu_count() or 1)) as workers:
            for share, at_least, share_of_rows in _CASCADES[precision]:
                most = max(at_least, math.ceil(share_of_rows * len(features)))
                if most < len(rows):
                    rows = rows[np.argpartition(-mean[rows], most - 1)[:most]]
                last = math.ceil(share * n_trees)
                if last > first:  # to LightGBM, no trees means all
                    mean[rows] += self._average(workers, features[rows], first, last - first)
                first = last
        return mean

    def _average(self, workers: Executor, features: Floats, first: int, n_trees: int) -> Floats:
        """Of all boosters, what ``n_trees`` trees from the ``first`` on tell; LightGBM lets go of Python meanwhile."""
        parts = workers.map(lambda booster: _predict(booster, features, first, n_trees), self.boosters)
        mean: Floats = np.mean(list(parts), axis=0)
        return mean

    def to_checkpoint(self) -> Parts:
        """LightGBM's own text of each model, less what prediction does not need."""
        return Parts(texts=[_slim(booster.model_to_string(num_iteration=-1)) for booster in self.boosters])

    @classmethod
    def from_checkpoint(cls, parts: Parts) -> TreeMean:
        """Inverse of :meth:`to_checkpoint`."""
        return cls([_lightgbm().Booster(model_str=text) for text in parts.texts])


def fit_tree_mean(
    examples: Examples, groups: Sequence[str], options: TreeOptions, progress: Progress | None = None
) -> tuple[TreeMean, list[Floats]]:
    """Cross-fit the trees; see :class:`~bo_tuner.surrogates.prior_mean.FitMean`."""
    fold_of = folds(groups, options.n_folds, options.seed)
    n_folds = max(fold_of) + 1
    done = 0

    def one_fold(fold: int) -> lightgbm.Booster:
        nonlocal done
        train = outside(fold_of, fold)
        features, targets = ([values[task] for task in train] for values in (examples.features, examples.targets))
        booster = _grow(features, targets, examples.names, options, fold)
        done += 1
        if progress is not None:
            progress("prior mean", done / n_folds)
        return booster

    with ThreadPoolExecutor(max_workers=options.n_jobs) as workers:
        # By way of the text, whose numbers are rounded, so that a loaded prior is the trained one.
        mean = TreeMean.from_checkpoint(TreeMean(list(workers.map(one_fold, range(n_folds)))).to_checkpoint())
    left_out = [_predict(mean.boosters[fold], x) for fold, x in zip(fold_of, examples.features, strict=True)]
    return mean, left_out


def _predict(booster: lightgbm.Booster, features: Floats, first: int = 0, n_trees: int | None = None) -> Floats:
    told = booster.predict(features, start_iteration=first, num_iteration=n_trees, num_threads=1)
    return np.asarray(told, dtype=np.float64)


def _grow(
    features: Sequence[Floats], targets: Sequence[Floats], names: Sequence[str], options: TreeOptions, fold: int
) -> lightgbm.Booster:
    x, y = np.concatenate(features), np.concatenate(targets)
    # Every task weighs the same, however large its pool.
    weight = np.concatenate([np.full(len(target), 1.0 / len(target)) for target in targets])
    drawn = np.random.default_rng([options.seed, fold]).random(len(y))
    near = y >= np.log(options.near)
    used = np.isfinite(y) & (near | (drawn < options.keep))
    weight = weight * np.where(near, 1.0, 1.0 / options.keep)
    x, y, weight = x[used], np.maximum(y[used], options.floor), weight[used]
    weight = weight * importance(y, options.weight_power)
    parameters = {
        "objective": "l2",
        "learning_rate": options.learning_rate,
        "num_leaves": options.n_leaves,
        "feature_fraction": options.feature_fraction,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "min_data_in_leaf": 20,
        "lambda_l2": 1.0,
        "max_bin": 63,
        "seed": options.seed * 100 + fold,
        "num_threads": 1,
        "deterministic": True,
        "force_col_wise": True,
        "verbose": -1,
    }
    data = _lightgbm().Dataset(x, y, weight=weight / weight.mean(), feature_name=list(names))
    booster: lightgbm.Booster = _lightgbm().train(parameters, data, num_boost_round=options.n_trees)
    return booster


#: What LightGBM tells of how a tree grew, and the sizes of the texts before they were cut.
_GROWTH = {
    "split_gain",
    "leaf_weight",
    "leaf_count",
    "internal_value",
    "internal_weight",
    "internal_count",
    "tree_sizes",
}


def _slim(text: str) -> str:
    """A model's text without the story of its growth and with short numbers: a quarter, and predictions within 1e-5."""
    lines = []
    for line in text.partition("end of trees")[0].splitlines():
        key, _, values = line.partition("=")
        if key in ("leaf_value", "threshold"):
            digits = 6 if key == "leaf_value" else 9
            line = f"{key}=" + " ".join(f"{float(value):.{digits}g}" for value in values.split())
        if key not in _GROWTH:
            lines.append(line)
    return "\n".join([*lines, "end of trees", ""])


def _lightgbm() -> Any:
    """LightGBM, loaded after torch: its wheel looks for an OpenMP library of the system, which torch's brings along.

    Raises:
        UserError: it is not installed, or neither has an OpenMP library.
    """
    import torch  # noqa: F401

    try:
        import lightgbm
    except ModuleNotFoundError:
        raise UserError("lightgbm: is not installed, but the prior is of its trees; pip install lightgbm") from None
    except OSError as error:
        raise UserError(f"lightgbm: cannot be loaded, {error}; Debian and Ubuntu have it as libgomp1") from None
    return lightgbm
