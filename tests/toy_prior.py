"""Toy tables and a prior trained on them, made once a test process."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.searchers.base import Searcher
from bo_tuner.storage.alignment import pool_codes
from bo_tuner.storage.tables import TaskTable
from bo_tuner.study import Study
from bo_tuner.surrogates.features import design_matrix
from bo_tuner.surrogates.meta_gp import MetaGP
from bo_tuner.surrogates.prior_mean import Examples
from bo_tuner.surrogates.residuals import log_efficiency
from bo_tuner.tuner import tune
from tests.toy_kernel import TOY_DEVICE, ToySpec, toy_tables

SPEC = ToySpec()
FEW_TREES = {"n_trees": 40, "learning_rate": 0.2, "n_folds": 3, "keep": 1.0}
FEW_STEPS = {"n_configs": 32, "n_steps": 10}


@functools.cache
def recorded(n_tasks: int, seed: int, device: str = TOY_DEVICE) -> tuple[TaskTable, ...]:
    """Recorded toy tasks; equal arguments give the very same objects."""
    with tempfile.TemporaryDirectory() as folder:
        return tuple(toy_tables(Path(folder), SPEC, n_tasks, seed, device))


def sources() -> tuple[TaskTable, ...]:
    """Tasks to learn from."""
    return recorded(8, 1)


def target() -> TaskTable:
    """A task of another seed, so of another shape."""
    return recorded(3, 2)[1]


@functools.cache
def examples() -> Examples:
    """The sources as a prior mean sees them."""
    designs = [design_matrix(SPEC, table.pool) for table in sources()]
    return Examples(
        tasks=[table.task for table in sources()],
        codes=[pool_codes(table.pool) for table in sources()],
        features=[values for _, values in designs],
        targets=[log_efficiency(table) for table in sources()],
        names=designs[0][0],
    )


@functools.cache
def toy_prior() -> MetaGP:
    """A prior trained on the sources."""
    return MetaGP(mean_options=FEW_TREES, covariance_options=FEW_STEPS).meta_fit(sources(), SPEC)


def replay(searcher: Searcher, n_trials: int, table: TaskTable | None = None) -> Study:
    """Tune a recorded task."""
    table = table or target()
    return tune(table.task, searcher, ReplayEvaluator(table), n_trials)
