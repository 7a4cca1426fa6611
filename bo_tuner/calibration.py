"""How right are predicted distances to the best config? Source tasks are tuned as if they were new, and tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.searchers import META_EXPLORATION
from bo_tuner.searchers.bayesian import BayesianSearcher
from bo_tuner.storage.tables import TaskTable, evenly
from bo_tuner.study import Study, Trial
from bo_tuner.surrogates.base import Progress
from bo_tuner.surrogates.distance import fit_factors
from bo_tuner.surrogates.meta_gp import MetaGP
from bo_tuner.tuner import assess, tune

#: Numbers of trials after which the prediction is compared with the truth.
CHECKED_TRIALS = (1, 2, 3, 5, 10, 20)
#: Source tasks that are tuned; a run of 20 trials over 3,000 configs takes half a second.
N_TASKS = 96


def calibrate_distance(
    surrogate: MetaGP, tables: Sequence[TaskTable], *, n_tasks: int = N_TASKS, progress: Progress | None = None
) -> NDArray[np.float64]:
    """Let a trained surrogate learn from its own sources how right its predicted distances are.

    Every run sees a prior that does not know the task's shape (:meth:`MetaGP.without`). Nothing but source tasks is
    looked at.

    Args:
        surrogate: just trained on ``tables``; gets the factors.
        tables: its sources.
        n_tasks: tune at most so many of them, evenly spread over devices and speeds.
        progress: told after every tenth task.

    Returns:
        One row a prediction, ``[n, 4]``: number of trials, predicted mean, predicted upper end, true distance; shares
        of time, not calibrated.

    Raises:
        ValueError: the surrogate was not trained in this process, or on other tables.
    """
    ordered = sorted(tables, key=lambda table: (table.task.device.key, table.best_us, table.task.key))
    chosen = evenly(ordered, n_tasks)
    rows: list[tuple[float, float, float, float]] = []
    for done, table in enumerate(chosen, start=1):
        rows += _distances(surrogate, table)
        if progress is not None and (done % 10 == 0 or done == len(chosen)):
            progress("distance to the best", done / len(chosen))
    found = np.array(rows, dtype=np.float64).reshape(-1, 4)
    if len(found) and surrogate.prior is not None:
        factors = fit_factors(found[:, 0].astype(np.int64), found[:, 1], found[:, 2], found[:, 3])
        surrogate.prior = replace(surrogate.prior, distance=factors)
    return found


def _distances(surrogate: MetaGP, table: TaskTable) -> list[tuple[float, float, float, float]]:
    """Number of trials, predicted mean and upper end, true distance of the incumbent of one run."""
    searcher = BayesianSearcher(table.pool, surrogate.without(table.task), exploration=META_EXPLORATION)
    trials: list[Trial] = []
    rows = []

    def compare(trial: Trial) -> None:
        trials.append(trial)
        if len(trials) not in CHECKED_TRIALS:
            return
        study = assess(Study(table.task, "", 0, tuple(trials)), searcher)
        if study.best is not None and (told := study.distance) is not None:
            true = 1.0 - table.efficiency(table.pool.index(study.best.config))
            rows.append((float(len(trials)), told.mean, told.high, true))

    tune(table.task, searcher, ReplayEvaluator(table), max(CHECKED_TRIALS), callbacks=[compare])
    return rows
