"""Bayesian optimization over a pool: a surrogate, an acquisition, and a list of what was tried."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bo_tuner.acquisition import check_acquisition, choose, score
from bo_tuner.errors import UserError
from bo_tuner.searchers.base import SpaceExhausted
from bo_tuner.space import Config, Pool
from bo_tuner.study import Distance, Status, Trial
from bo_tuner.surrogates.base import Calibrated, Surrogate
from bo_tuner.surrogates.distance import distance_to_best
from bo_tuner.surrogates.pool_model import PoolGP, pool_inputs

#: Failures of the compiled kernel itself; configs that share it fail too.
_COMPILED_FAILURES = {Status.COMPILE, Status.CONSTRAINTS, Status.RUNTIME, Status.CORRECTNESS}


class BayesianSearcher:
    """Asks for the untried config with the highest acquisition value.

    Before any trial is correct there is nothing to improve on: configs are then taken in the order of the prior mean
    (or at random for the first ``n_random`` trials, for a surrogate whose prior knows nothing). A failed trial is
    masked and enters no model as a number; configs that share its compiled kernel are put behind all others.

    Args:
        pool: the task's configs.
        surrogate: trained if it needs to be.
        acquisition: name, see :func:`bo_tuner.acquisition.acquisition_names`.
        exploration: what the surrogate's standard deviations are multiplied by before the acquisition scores a config;
            predictions, expected gains and distances are told without it.
        n_random: number of first trials drawn at random.
        seed: of the random trials and of Thompson samples.

    Raises:
        UserError: there is no such acquisition, or ``exploration`` is not positive.
    """

    def __init__(
        self,
        pool: Pool,
        surrogate: Surrogate,
        acquisition: str = "log_ei",
        *,
        exploration: float = 1.0,
        n_random: int = 0,
        seed: int = 0,
    ) -> None:
        if exploration <= 0:
            raise UserError(f"exploration: {exploration} is not positive")
        self.pool = pool
        self.surrogate = surrogate
        self.acquisition = check_acquisition(acquisition)
        self.exploration = exploration
        self.seed = seed
        self.trials: list[Trial] = []
        self.tried = np.zeros(len(pool), dtype=bool)
        self.doubtful = np.zeros(len(pool), dtype=bool)
        self._random = np.random.default_rng(seed).permutation(len(pool))[:n_random].tolist()
        self._inputs = pool_inputs(pool)
        self._model: Any = None  # of the trials so far, made when it is needed

    def ask(self) -> Config:
        """The next config.

        Raises:
            SpaceExhausted: all were tried.
        """
        allowed = self._allowed()
        if len(self.trials) < len(self._random) and allowed[self._random[len(self.trials)]]:
            return self.pool.config(self._random[len(self.trials)])
        prior_mean = self.surrogate.prior_mean(self.pool)
        if not self._speeds():
            return self.pool.config(choose(prior_mean, prior_mean, allowed))
        return self.pool.config(choose(self._scores(self.acquisition, self.exploration), prior_mean, allowed))

    def expected_gain(self) -> float:
        """Share of the best time so far that the next trial is expected to save: its expected improvement.

        Infinite before a trial is correct and while trials are drawn at random; 0 when nothing is left to try.
        """
        if not self._speeds() or len(self.trials) < len(self._random):
            return math.inf
        return 0.0 if self.tried.all() else float(self._scores("ei")[self._allowed()].max())

    def predict(self, config: Config) -> tuple[float, float] | None:
        """Mean and standard deviation of the log of a config's next reading in µs.

        None before a trial is correct, and for a surrogate whose model is none of a pool's.
        """
        if not self._speeds() or not isinstance(model := self._fitted(), PoolGP):
            return None
        mean, sd = model.predict(self.pool.index(config))
        return -mean, sd

    def expected_distance(self, config: Config) -> Distance | None:
        """How far a config is thought to be from the best of all, after the trials so far.

        Calibrated where the surrogate has learned how; None before a trial is correct, and for a surrogate whose
        model is none of a pool's.
        """
        if not self._speeds() or not isinstance(model := self._fitted(), PoolGP):
            return None
        fails = [self.pool.index(trial.config) for trial in self.trials if not trial.measurement.ok]
        excluded = self.doubtful & ~self.tried
        excluded[fails] = True
        told = distance_to_best(model, self.pool.index(config), excluded, self.seed)
        factors = self.surrogate.distance_factors if isinstance(self.surrogate, Calibrated) else None
        return told if factors is None else factors.apply(told, len(self.trials))

    def _allowed(self) -> NDArray[np.bool_]:
        """Rows that may be tried next: those not tried, and of these the doubtful ones last."""
        allowed = ~self.tried
        if not allowed.any():
            raise SpaceExhausted
        return allowed & ~self.doubtful if (allowed & ~self.doubtful).any() else allowed

    def _speeds(self) -> list[float]:
        return [-math.log(trial.measurement.time_us) for trial in self.trials if trial.measurement.ok]

    def _scores(self, acquisition: str, exploration: float = 1.0) -> NDArray[np.float64]:
        seed = self.seed * 10_007 + len(self.trials)
        return score(acquisition, self._fitted(), self._inputs, max(self._speeds()), seed, exploration)

    def _fitted(self) -> Any:
        if self._model is None:
            self._model = self.surrogate.fit(self.pool, self.trials)
        return self._model

    def tell(self, trial: Trial) -> None:
        """Take note of a trial."""
        row = self.pool.index(trial.config)
        self.trials.append(trial)
        self._model = None
        self.tried[row] = True
        if trial.measurement.status in _COMPILED_FAILURES:
            self.doubtful |= self._same_kernel(row)

    def _same_kernel(self, row: int) -> NDArray[np.bool_]:
        same = np.ones(len(self.pool), dtype=bool)
        for parameter in self.pool.parameters:
            if not parameter.launch:
                column = self.pool.columns[parameter.name]
                same &= column == column[row]
        return same
