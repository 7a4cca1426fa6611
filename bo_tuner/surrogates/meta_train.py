"""Meta-training: from recorded source tasks to everything a :class:`~bo_tuner.surrogates.meta_gp.MetaGP` needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.storage.alignment import pool_codes
from bo_tuner.storage.compiled import CompiledFacts
from bo_tuner.storage.tables import TaskTable, evenly
from bo_tuner.surrogates.base import Progress
from bo_tuner.surrogates.covariance import (
    categorical_dims,
    gaussian_nll,
    log_normal_penalty,
    mixed_correlation,
    ordered_dims,
)
from bo_tuner.surrogates.distance import DistanceFactors
from bo_tuner.surrogates.features import design_matrix
from bo_tuner.surrogates.means import MeanKind
from bo_tuner.surrogates.prior_mean import Examples, Floats, PriorMean
from bo_tuner.surrogates.residuals import (
    Curve,
    Residuals,
    align_residuals,
    greedy_portfolio,
    log_efficiency,
    noise_curve,
)

#: One config in so many is enough to see how much larger residuals are on an unseen device, which is one number.
_KEPT_OF_DEVICES = 3


@dataclass(frozen=True)
class MetaPrior:
    """A trained prior.

    Args:
        mean: prior mean.
        feature_names: columns of the design matrix, in order.
        residuals: cross-fitted residuals of the sources.
        noise: variance of a reading over log time.
        scales: lengthscales of the mixed covariance, ``[n_parameters]``.
        smooth: share of the residual variance that neighbouring configs share.
        device_scale: factor of the residual variance on a device that is not among the sources.
        devices: keys of the source devices.
        portfolio: codes of the greedy portfolio.
        distance: what makes predicted distances to the best config right; None if nobody has looked.
    """

    mean: PriorMean
    feature_names: tuple[str, ...]
    residuals: Residuals
    noise: Curve
    scales: Floats
    smooth: float
    device_scale: float
    devices: tuple[str, ...]
    portfolio: NDArray[np.int64]
    distance: DistanceFactors | None = None


@dataclass(frozen=True)
class CovarianceOptions:
    """How the mixed covariance is fitted.

    Args:
        n_tasks: source tasks that enter the likelihood, evenly spread over the list; only for speed.
        n_configs: configs of a task that enter it, most of them near its top.
        n_steps: gradient steps.
        seed: of the choice of configs.
    """

    n_tasks: int = 96
    n_configs: int = 96
    n_steps: int = 60
    seed: int = 0


def meta_train(
    tables: Sequence[TaskTable],
    spec: KernelSpec,
    mean: MeanKind,
    mean_options: Any,
    covariance: CovarianceOptions,
    *,
    compiled: CompiledFacts | None = None,
    progress: Progress | None = None,
) -> tuple[MetaPrior, list[Floats]]:
    """Train a prior.

    Args:
        tables: source tasks of one kernel, of at least two shapes.
        spec: the kernel.
        mean: which kind of prior mean.
        mean_options: how it is fitted, of the kind's own class.
        covariance: how the covariance is fitted.
        compiled: what the compiler says of the configs, as further features.
        progress: told what is being done.

    Returns:
        The prior, and for each task the prior mean by those who did not see it.

    Raises:
        UserError: fewer than two different shapes, or a task without a correct config.
    """
    shapes = [table.task.shape_key for table in tables]
    if len(set(shapes)) < 2:
        raise UserError(f"sources: {len(set(shapes))} shapes are too few to learn a prior, at least 2 are needed")
    for table in tables:
        if not table.correct.any():
            raise UserError(f"sources: {table.task.key} has no correct config")
    if progress is not None:
        progress("features", 0.0)
    designs = [design_matrix(spec, table.pool, compiled) for table in tables]
    examples = Examples(
        tasks=[table.task for table in tables],
        codes=[pool_codes(table.pool) for table in tables],
        features=[values for _, values in designs],
        targets=[log_efficiency(table) for table in tables],
        names=designs[0][0],
    )
    devices = tuple(sorted({table.task.device.key for table in tables}))
    prior_mean, left_out = mean.fit(examples, shapes, mean_options, progress)
    residuals = align_residuals(tables, left_out)
    device_scale = 1.0
    if len(devices) > 1:
        by_device = [table.task.device.key for table in tables]
        thinned, kept = _thinned(examples)
        _, across = mean.fit(thinned, by_device, mean_options, progress)
        within = [predicted[rows] for predicted, rows in zip(left_out, kept, strict=True)]
        device_scale = _variance_ratio(thinned.targets, within, across)
    if progress is not None:
        progress("covariance", 0.0)
    scales, smooth = _fit_mixed(tables, residuals, left_out, covariance)
    if progress is not None:
        progress("covariance", 1.0)
    prior = MetaPrior(
        mean=prior_mean,
        feature_names=tuple(examples.names),
        residuals=residuals,
        noise=noise_curve(tables),
        scales=scales,
        smooth=smooth,
        device_scale=device_scale,
        devices=devices,
        portfolio=greedy_portfolio(tables),
    )
    return prior, left_out


def _thinned(examples: Examples) -> tuple[Examples, list[NDArray[np.int64]]]:
    """One config in so many and their rows; the same in every task, as a mean may compare tasks config by config."""
    codes = np.random.default_rng(0).permutation(np.unique(np.concatenate(examples.codes)))[::_KEPT_OF_DEVICES]
    kept = [np.flatnonzero(np.isin(own, codes)) for own in examples.codes]

    def rows_of(parts: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        return [part[rows] for part, rows in zip(parts, kept, strict=True)]

    thinned = Examples(
        tasks=examples.tasks,
        codes=rows_of(examples.codes),
        features=rows_of(examples.features),
        targets=rows_of(examples.targets),
        names=examples.names,
    )
    return thinned, kept


def _variance_ratio(targets: Sequence[Floats], within: Sequence[Floats], across: Sequence[Floats]) -> float:
    """How much larger residual variance is on an unseen device, near the top; at least 1."""

    def variance(predictions: Sequence[Floats]) -> float:
        per_task = []
        for target, predicted in zip(targets, predictions, strict=True):
            ok = np.isfinite(target)
            if not ok.any():
                continue
            weight = np.exp(3.0 * target[ok])
            residual = target[ok] - predicted[ok]
            residual = residual - np.average(residual, weights=weight)
            per_task.append(np.average(residual**2, weights=weight))
        return float(np.mean(per_task))

    return max(1.0, variance(across) / max(variance(within), 1e-9))


def _fit_mixed(
    tables: Sequence[TaskTable], residuals: Residuals, left_out: Sequence[Floats], options: CovarianceOptions
) -> tuple[Floats, float]:
    """Lengthscales and smooth share by the likelihood pooled over tasks, each task's level left free.

    The residuals are divided by the standard deviation that the variance curve gives them, so only their correlation
    is fitted. Lengthscales have a broad log-normal prior; Adam, float64, deterministic.
    """
    parameters = tables[0].pool.parameters
    x, z = _standardised(tables, residuals, left_out, options)
    ordered, categorical = ordered_dims(parameters), categorical_dims(parameters)
    log_scales = torch.zeros(len(parameters), dtype=torch.float64, requires_grad=True)
    logits = torch.tensor([0.5, 0.0], dtype=torch.float64, requires_grad=True)  # smooth share, log variance
    optimizer = torch.optim.Adam([log_scales, logits], lr=0.1)
    eye = torch.eye(x.shape[-2], dtype=torch.float64)
    for _ in range(options.n_steps):
        optimizer.zero_grad()
        smooth, variance = torch.sigmoid(logits[0]), logits[1].exp()
        correlation = mixed_correlation(x, x, ordered, categorical, log_scales.exp())
        # A level variance of 4 standardised units leaves the task's level free.
        prior = variance * (smooth * correlation + (1.0 - smooth) * eye) + 4.0 + 1e-6 * eye
        loss = (gaussian_nll(prior, z) + log_normal_penalty(log_scales, 0.5, 1.0)) / len(z)
        loss.backward()
        optimizer.step()
    return log_scales.detach().exp().numpy(), float(torch.sigmoid(logits[0]).detach())


def _standardised(
    tables: Sequence[TaskTable], residuals: Residuals, left_out: Sequence[Floats], options: CovarianceOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Encoded configs ``[n_tasks, n, d]`` and standardised residuals ``[n_tasks, n]``; three quarters near the top."""
    rng = np.random.default_rng(options.seed)
    n = min(options.n_configs, *(int(table.correct.sum()) for table in tables))
    x, z = [], []
    for row in evenly(range(len(tables)), options.n_tasks):
        table, predicted = tables[row], left_out[row]
        own = residuals.values[row, np.searchsorted(residuals.codes, pool_codes(table.pool))].astype(np.float64)
        correct = np.flatnonzero(table.correct)
        ranked = correct[np.argsort(-table.efficiencies[correct], kind="stable")]
        top = rng.permutation(ranked[: max(n, len(ranked) // 5)])[: n - n // 4]
        rest = rng.permutation(np.setdiff1d(correct, top))[: n - len(top)]
        rows = np.concatenate([top, rest])
        x.append(table.pool.encoded[rows])
        z.append(own[rows] / np.sqrt(residuals.variance(predicted[rows])))
    return torch.as_tensor(np.stack(x)), torch.as_tensor(np.stack(z))
