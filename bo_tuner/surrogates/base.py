"""What a surrogate does: learn a prior from source tasks, then turn a few trials into a BoTorch model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import Pool
from bo_tuner.study import Trial

if TYPE_CHECKING:
    from botorch.models.model import Model

    from bo_tuner.storage.tables import TaskTable
    from bo_tuner.surrogates.distance import DistanceFactors

#: Called with what is being done and the share that is done, from 0 to 1.
Progress = Callable[[str, float], None]


class Surrogate(Protocol):
    """A Gaussian process over the log speed of the configs of one task, y = -log(time in µs)."""

    def meta_fit(self, sources: Sequence[TaskTable], spec: KernelSpec, progress: Progress | None = None) -> Self:
        """Learn the prior from recorded tasks; a surrogate without a learned prior only takes note of the spec."""
        ...

    def prior_mean(self, pool: Pool) -> NDArray[np.float64]:
        """Prior mean of log(best / time) of every config before any trial, shape ``[len(pool)]``."""
        ...

    def fit(self, pool: Pool, trials: Sequence[Trial]) -> Model:
        """A model of y over rows ``[row, encoded parameters]``, given the trials of one task; at least one is correct.

        Raises:
            ValueError: no trial is correct: there is nothing to fit, use :meth:`prior_mean`.
        """
        ...


@runtime_checkable
class Calibrated(Protocol):
    """A surrogate that may have learned from source tasks how right its predicted distances are."""

    @property
    def distance_factors(self) -> DistanceFactors | None:
        """What its predictions are to be multiplied by; None if nobody has looked."""
        ...


def observations(
    pool: Pool, trials: Sequence[Trial]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Rows, mean log speed and number of trials of every config with a correct trial; each of shape ``[n]``.

    Trials of one config are one observation: two equal inputs would make the covariance singular.

    Raises:
        ValueError: no trial is correct.
    """
    seen: dict[int, list[float]] = {}
    for trial in trials:
        if trial.measurement.ok:
            seen.setdefault(pool.index(trial.config), []).append(-float(np.log(trial.measurement.time_us)))
    if not seen:
        raise ValueError("no trial is correct: there is nothing to fit")
    return (
        np.array(list(seen), dtype=np.int64),
        np.array([np.mean(values) for values in seen.values()], dtype=np.float64),
        np.array([len(values) for values in seen.values()], dtype=np.int64),
    )
