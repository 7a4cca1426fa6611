"""The meta-trained Gaussian process: prior mean and covariance learned from other shapes and devices, frozen online.

y = -log(time) of a config is modelled as level + m(config) + residual + noise. The level is the task's unknown best, m
the prior mean of log(best / time), the residual's covariance a blend of what past residuals did and of a smooth
function of the parameters. The construction is the GCP of Salinas et al. (2020, "A quantile-based approach for
hyperparameter transfer learning") with a residual covariance pre-trained as in HyperBO (Wang et al., 2024).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import Config, Pool
from bo_tuner.storage.alignment import pool_codes
from bo_tuner.storage.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from bo_tuner.storage.compiled import CompiledFacts
from bo_tuner.storage.tables import TaskTable
from bo_tuner.study import Trial
from bo_tuner.surrogates.base import Progress, observations
from bo_tuner.surrogates.covariance import (
    BlendedCovariance,
    EmpiricalCovariance,
    MixedCovariance,
    categorical_dims,
    ordered_dims,
)
from bo_tuner.surrogates.distance import DistanceFactors
from bo_tuner.surrogates.features import design_matrix
from bo_tuner.surrogates.header import check_header, make_header
from bo_tuner.surrogates.means import mean_kind, mean_names
from bo_tuner.surrogates.means import mean_options as named_options
from bo_tuner.surrogates.meta_train import CovarianceOptions, MetaPrior, meta_train
from bo_tuner.surrogates.pool_model import PoolGP, RememberedCovariance, as_tensor, pool_inputs
from bo_tuner.surrogates.prior_mean import Parts, Precision
from bo_tuner.surrogates.residuals import Curve, Residuals
from bo_tuner.task import Task

#: In front of the names of a checkpoint's arrays that are the prior mean's.
_MEAN_PREFIX = "mean."


class MetaGP:
    """A GP with a learned, frozen prior. Every part can be switched off for an ablation.

    Args:
        mean: kind of the prior mean: ``trees``, ``mlp``, ``kernel_regression`` or ``none``, which is 0 everywhere.
        empirical_share: weight of the empirical covariance against the mixed one, from 0 to 1.
        level_sd: prior standard deviation of the task's level around the first readings; 0 switches the term off.
        calibrate: enlarge the residual variance on a device that is not among the sources by what leaving whole source
            devices out showed.
        shrinkage: share of the empirical covariance that is kept, the rest goes to its diagonal.
        compiled: what the compiler says of the configs, as further features of the prior mean.
        mean_options: fields of the kind's options that differ from the default, for example of :class:`TreeOptions`.
        covariance_options: fields of :class:`CovarianceOptions` that differ from the default.

    Raises:
        UserError: an argument is out of its range.
    """

    def __init__(
        self,
        *,
        mean: str = "trees",
        empirical_share: float = 0.5,
        level_sd: float = 0.5,
        calibrate: bool = True,
        shrinkage: float = 0.9,
        compiled: CompiledFacts | None = None,
        mean_options: Mapping[str, Any] | None = None,
        covariance_options: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value, high in (("empirical_share", empirical_share, 1.0), ("shrinkage", shrinkage, 1.0)):
            if not 0 <= value <= high:
                raise UserError(f"{name}: {value} is not between 0 and {high:g}")
        if level_sd < 0:
            raise UserError(f"level_sd: {level_sd} is negative")
        self.mean = mean
        self.empirical_share = empirical_share
        self.level_sd = level_sd
        self.calibrate = calibrate
        self.shrinkage = shrinkage
        self.compiled = compiled
        self.mean_options = named_options(mean, mean_options or {})
        self.covariance_options = CovarianceOptions(**(covariance_options or {}))
        self.spec: KernelSpec | None = None
        self.prior: MetaPrior | None = None
        self.header: dict[str, Any] = {}
        self._last: tuple[Pool, _PoolPrior] | None = None
        #: Sources and the prior mean of each by those who did not see it; not kept in a file.
        self._left_out: list[tuple[Task, NDArray[np.float64]]] = []

    def meta_fit(self, sources: Sequence[TaskTable], spec: KernelSpec, progress: Progress | None = None) -> Self:
        """Train the prior on source tasks; see :func:`~bo_tuner.surrogates.meta_train.meta_train`.

        Raises:
            UserError: the sources are too few.
        """
        self.prior, left_out = meta_train(
            sources,
            spec,
            mean_kind(self.mean),
            self.mean_options,
            self.covariance_options,
            compiled=self.compiled,
            progress=progress,
        )
        self.spec, self._last = spec, None
        self._left_out = [(table.task, mean) for table, mean in zip(sources, left_out, strict=True)]
        self.header = make_header(sources, spec, self.prior, self.mean, asdict(self.mean_options))
        return self

    @property
    def portfolio(self) -> NDArray[np.int64]:
        """Codes of the greedy portfolio of the source tasks."""
        return self._trained()[1].portfolio

    @property
    def distance_factors(self) -> DistanceFactors | None:
        """What makes predicted distances to the best config right; None if nobody has looked."""
        return self._trained()[1].distance

    def without(self, task: Task) -> MetaGP:
        """This surrogate as if a source's shape had not been among the sources, on any device; for that task alone.

        The prior mean is the cross-fitted one and the residuals of the shape are left out. Lengthscales, curves and
        scales are the same: single tasks hardly move them.

        Raises:
            ValueError: the task is not among the sources of a training in this process.
        """
        prior = self._trained()[1]
        mean = next((mean for source, mean in self._left_out if source == task), None)
        if mean is None:
            raise ValueError(f"{task.key} is not among the tasks that this surrogate was just trained on")
        same_shape = np.array([source.shape_key == task.shape_key for source, _ in self._left_out])
        twin = copy.copy(self)
        twin.prior = replace(prior, residuals=prior.residuals.without(same_shape), distance=None)
        pool = self._trained()[0].pool(task)
        twin._last = (pool, _PoolPrior(pool, mean, twin._covariance))
        return twin

    def has_seen(self, task: Task) -> bool:
        """Whether a task is among the sources, so that a judgement on it would flatter."""
        return task.key in self.header.get("sources", ())

    def prior_mean(self, pool: Pool) -> NDArray[np.float64]:
        """Prior mean of log(best / time), shape ``[len(pool)]``; configs far behind the best may be told roughly."""
        return self._pool_prior(pool).mean

    def design(self, pool: Pool) -> tuple[list[str], NDArray[np.float64]]:
        """Names and values of the inputs of the prior mean, ``[d]`` and ``[len(pool), d]``."""
        return design_matrix(self._trained()[0], pool, self.compiled)

    def mean_at(self, pool: Pool, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Exact prior mean of log(best / time), ``[n]``, at rows of a design matrix, ``[n, d]``, or at made-up ones."""
        return self._trained()[1].mean.predict(pool, features, "exact")

    def covariance(self, pool: Pool) -> BlendedCovariance:
        """Prior covariance of a pool."""
        return self._pool_prior(pool).covariance

    def favourites(self, pool: Pool, n: int) -> list[Config]:
        """The ``n`` configs with the highest prior mean, best first; a few dozen at most, which are told quickly."""
        last = self._last
        mean = last[1].mean if last is not None and last[0] is pool else self._mean(pool, "choice")
        return [pool.config(int(row)) for row in np.argsort(-mean, kind="stable")[:n]]

    def fit(self, pool: Pool, trials: Sequence[Trial]) -> PoolGP:
        """A model of y = -log(time in µs) given the trials of one task.

        The level's prior is centred on the observations (on the mean of y - m), never on the task's best.

        Raises:
            ValueError: no trial is correct.
        """
        prior = self._pool_prior(pool)
        rows, y, counts = observations(pool, trials)
        noise = self._trained()[1].noise(-y) / counts
        level = float(np.mean(y - prior.mean[rows]))
        return PoolGP(
            inputs=prior.inputs,
            mean=as_tensor(prior.mean + level),
            covariance=prior.remembered,
            rows=torch.as_tensor(rows),
            y=as_tensor(y),
            noise=as_tensor(noise),
        )

    def save(self, path: Path | str) -> None:
        """Write the trained prior to one file without pickle."""
        prior = self._trained()[1]
        mean = prior.mean.to_checkpoint()
        arrays: dict[str, NDArray[Any]] = {
            "codes": prior.residuals.codes,
            "residuals": prior.residuals.values,
            "variance_x": prior.residuals.variance.x,
            "variance_y": prior.residuals.variance.y,
            "noise_x": prior.noise.x,
            "noise_y": prior.noise.y,
            "scales": prior.scales,
            "portfolio": prior.portfolio,
        }
        arrays |= {f"{_MEAN_PREFIX}{name}": values for name, values in mean.arrays.items()}
        if prior.distance is not None:
            arrays |= {"distance_x": prior.distance.mean.x, "distance_mean": prior.distance.mean.y}
            arrays |= {"distance_high": prior.distance.high.y, "distance_floor": np.array([prior.distance.floor])}
        write_checkpoint(path, Checkpoint(self.header, arrays, mean.texts))

    @classmethod
    def load(cls, path: Path | str, spec: KernelSpec, **options: Any) -> MetaGP:
        """Read a prior that :meth:`save` wrote; ``options`` are the constructor's.

        Raises:
            UserError: the file is damaged, was trained for another kernel, space or version of the features, or has
                another kind of prior mean than ``options`` ask for.
        """
        checkpoint = read_checkpoint(path)
        header, arrays = checkpoint.header, checkpoint.arrays
        check_header(path, header, spec, compiled=options.get("compiled") is not None)
        # The first priors had trees or nothing and did not say which.
        kind = header.get("mean", "trees" if checkpoint.texts else "none")
        if kind not in mean_names():
            raise UserError(f"{path}: mean: {kind!r} is not one of {', '.join(mean_names())}")
        surrogate = cls(**{"mean": kind, **options})
        if surrogate.mean != kind:
            raise UserError(f"{path}: mean: is {kind}, not {surrogate.mean}; train another prior for that")
        of_mean = {
            name.removeprefix(_MEAN_PREFIX): values for name, values in arrays.items() if name.startswith(_MEAN_PREFIX)
        }
        try:
            prior = MetaPrior(
                mean=mean_kind(kind).load(Parts(of_mean, checkpoint.texts)),
                feature_names=tuple(header["feature_names"]),
                residuals=Residuals(
                    arrays["codes"], arrays["residuals"], Curve(arrays["variance_x"], arrays["variance_y"])
                ),
                noise=Curve(arrays["noise_x"], arrays["noise_y"]),
                scales=arrays["scales"],
                smooth=header["smooth"],
                device_scale=header["device_scale"],
                devices=tuple(header["devices"]),
                portfolio=arrays["portfolio"],
                distance=_distance_factors(arrays),
            )
        except KeyError as error:
            raise UserError(f"{path}: {error.args[0]}: is missing") from None
        surrogate.spec, surrogate.prior, surrogate.header = spec, prior, dict(header)
        return surrogate

    def _trained(self) -> tuple[KernelSpec, MetaPrior]:
        if self.spec is None or self.prior is None:
            raise UserError("surrogate: meta_gp has no prior yet, train it (meta_fit) or load one")
        return self.spec, self.prior

    def _pool_prior(self, pool: Pool) -> _PoolPrior:
        last = self._last
        if last is None or last[0] is not pool:
            last = self._last = (pool, _PoolPrior(pool, self._mean(pool, "search"), self._covariance))
        return last[1]  # not what another thread may have put there meanwhile

    def _mean(self, pool: Pool, precision: Precision) -> NDArray[np.float64]:
        """Prior mean of a pool, ``[len(pool)]``."""
        spec, prior = self._trained()
        if pool.task.kernel != spec.name:
            raise UserError(f"prior: was trained for {spec.name}, not for {pool.task.kernel}")
        names, features = self.design(pool)
        if tuple(names) != prior.feature_names:
            raise UserError(f"prior: was trained on other features of {spec.name}, train it again")
        return prior.mean.predict(pool, features, precision)

    def _covariance(self, pool: Pool, mean: NDArray[np.float64]) -> BlendedCovariance:
        """The prior covariance of a pool around a prior mean, ``[len(pool)]``."""
        prior = self._trained()[1]
        factor, rest = prior.residuals.factor(pool_codes(pool), mean, self.shrinkage)
        known_device = pool.task.device.key in prior.devices
        mixed = MixedCovariance(
            encoded=as_tensor(pool.encoded.T).T,  # its columns are read one by one
            ordered=ordered_dims(pool.parameters),
            categorical=categorical_dims(pool.parameters),
            scales=as_tensor(prior.scales),
            sd=as_tensor(np.sqrt(prior.residuals.variance(mean))),
            smooth=prior.smooth,
        )
        return BlendedCovariance(
            empirical=EmpiricalCovariance(torch.as_tensor(factor), as_tensor(rest)),
            mixed=mixed,
            share=self.empirical_share,
            scale=prior.device_scale if self.calibrate and not known_device else 1.0,
            level_variance=self.level_sd**2,
        )


class _PoolPrior:
    """The prior of one pool, each part made once; the mean is all that a choice without trials needs.

    Args:
        pool: the pool.
        mean: prior mean of log(best / time), ``[len(pool)]``.
        covariance: makes the covariance out of both.
    """

    def __init__(
        self,
        pool: Pool,
        mean: NDArray[np.float64],
        covariance: Callable[[Pool, NDArray[np.float64]], BlendedCovariance],
    ) -> None:
        self._pool, self.mean, self._covariance = pool, mean, covariance

    @cached_property
    def inputs(self) -> Tensor:
        """What the models of this pool look their inputs up by."""
        return pool_inputs(self._pool)

    @cached_property
    def covariance(self) -> BlendedCovariance:
        """Prior covariance of the pool."""
        return self._covariance(self._pool, self.mean)

    @cached_property
    def remembered(self) -> RememberedCovariance:
        """The same for a run, which asks for its observed rows again after every trial."""
        return RememberedCovariance(self.covariance)


def _distance_factors(arrays: Mapping[str, NDArray[Any]]) -> DistanceFactors | None:
    """None for a prior that was saved without them."""
    if "distance_x" not in arrays:
        return None
    at = arrays["distance_x"]
    mean, high = Curve(at, arrays["distance_mean"]), Curve(at, arrays["distance_high"])
    return DistanceFactors(mean, high, float(arrays["distance_floor"][0]))
