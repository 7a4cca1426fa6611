from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bo_tuner.errors import UserError
from bo_tuner.searchers import make_searcher
from bo_tuner.searchers.base import SpaceExhausted
from bo_tuner.searchers.bayesian import BayesianSearcher
from bo_tuner.storage.tables import TaskTable
from bo_tuner.study import Measurement, Status, Trial
from bo_tuner.surrogates.meta_gp import MetaGP
from tests.toy_prior import FEW_STEPS, FEW_TREES, SPEC, replay, sources, target, toy_prior

POOL = target().pool


def failed(index: int, row: int, status: Status = Status.COMPILE) -> Trial:
    return Trial(index, POOL.config(row), Measurement(status))


def test_the_first_trial_is_the_best_of_the_prior() -> None:
    searcher = BayesianSearcher(POOL, toy_prior())
    assert POOL.index(searcher.ask()) == int(np.argmax(toy_prior().prior_mean(POOL)))
    assert searcher.ask() == searcher.ask()


def test_while_all_trials_fail_the_prior_decides() -> None:
    searcher = BayesianSearcher(POOL, toy_prior())
    order = np.argsort(-toy_prior().prior_mean(POOL), kind="stable").tolist()
    tried = []
    for index in range(4):
        row = POOL.index(searcher.ask())
        tried.append(row)
        searcher.tell(failed(index, row, Status.TIMEOUT))
    assert tried == order[:4]


def test_configs_of_a_kernel_that_does_not_compile_come_last() -> None:
    searcher = BayesianSearcher(POOL, toy_prior())
    first = searcher.ask()
    searcher.tell(failed(0, POOL.index(first)))
    siblings = {POOL.index({**first, "group": group}) for group in (1, 2, 4)}
    asked = []
    for index in range(1, len(POOL)):
        row = POOL.index(searcher.ask())
        asked.append(row)
        searcher.tell(failed(index, row, Status.TIMEOUT))
    assert set(asked[-2:]) == siblings - {POOL.index(first)}
    with pytest.raises(SpaceExhausted):
        searcher.ask()


def test_a_timeout_says_nothing_of_its_siblings() -> None:
    searcher = BayesianSearcher(POOL, toy_prior())
    searcher.tell(failed(0, 0, Status.TIMEOUT))
    assert not searcher.doubtful.any()


def test_random_trials_first() -> None:
    a, b, c = (
        [trial.config for trial in replay(BayesianSearcher(POOL, toy_prior(), n_random=3, seed=seed), 3).trials]
        for seed in (1, 1, 2)
    )
    assert a == b != c


def test_feedback_corrects_a_prior_that_is_wrong_here() -> None:
    """In most sources one loader is slow; in the target it is fast. Feedback finds out, the prior alone cannot."""

    def slow_loader(table: TaskTable) -> TaskTable:
        factor = np.where(table.pool.columns["loader"] == "tma", 1.4, 1.0)
        return dataclasses.replace(table, final_us=table.final_us * factor, reading_us=table.reading_us * factor)

    mixed = [slow_loader(table) if at % 3 else table for at, table in enumerate(sources())]
    prior = MetaGP(mean_options=FEW_TREES, covariance_options=FEW_STEPS).meta_fit(mixed, SPEC)
    table = target()
    reached = {}
    for method in ("meta_gp", "prior_only"):
        best = replay(make_searcher(method, SPEC, table.task, prior=prior), 12).best
        assert best is not None
        reached[method] = table.efficiency(POOL.index(best.config))
    assert reached["meta_gp"] > reached["prior_only"]


def test_unknown_acquisition() -> None:
    with pytest.raises(UserError, match="acquisition"):
        BayesianSearcher(POOL, toy_prior(), "best")
    with pytest.raises(UserError, match="exploration: 0 is not positive"):
        BayesianSearcher(POOL, toy_prior(), exploration=0)


def test_a_config_of_another_pool_is_refused() -> None:
    searcher = BayesianSearcher(POOL, toy_prior())
    trial = failed(0, 0)
    with pytest.raises(UserError, match="not a valid config"):
        searcher.tell(dataclasses.replace(trial, config={"tile": 3}))
    assert SPEC.name == POOL.task.kernel
