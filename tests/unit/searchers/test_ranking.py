from __future__ import annotations

import numpy as np
import pytest

from bo_tuner.errors import UserError
from bo_tuner.searchers import make_searcher, method_names, needs_prior
from bo_tuner.searchers.ranking import portfolio_order, random_order
from bo_tuner.storage.alignment import pool_codes
from tests.toy_prior import SPEC, replay, target, toy_prior

POOL = target().pool


def test_random_is_seeded() -> None:
    a, b, c = (
        [trial.config for trial in replay(make_searcher("random", SPEC, target().task, seed=seed), 10).trials]
        for seed in (1, 1, 2)
    )
    assert a == b != c


def test_prior_only_follows_the_prior() -> None:
    mean = toy_prior().prior_mean(POOL)
    study = replay(make_searcher("prior_only", SPEC, target().task, prior=toy_prior()), 10)
    ranks = [mean[POOL.index(trial.config)] for trial in study.trials]
    assert ranks == sorted(mean, reverse=True)[:10]


def test_portfolio_skips_what_the_pool_lacks_and_never_repeats() -> None:
    codes = pool_codes(POOL)
    order = portfolio_order(POOL, np.array([codes[9], 10**9, codes[2]]), seed=0)
    assert order[:2].tolist() == [9, 2]
    assert sorted(order.tolist()) == list(range(len(POOL)))


def test_portfolio_starts_with_the_config_that_is_best_on_average() -> None:
    study = replay(make_searcher("portfolio", SPEC, target().task, prior=toy_prior()), 8)
    assert study.best is not None
    assert target().efficiency(POOL.index(study.best.config)) > 0.8


def test_random_order_is_a_permutation() -> None:
    assert sorted(random_order(POOL, 3).tolist()) == list(range(len(POOL)))


@pytest.mark.parametrize("method", [name for name in method_names() if needs_prior(name)])
def test_a_method_without_its_prior(method: str) -> None:
    with pytest.raises(UserError, match=f"{method} needs a trained prior"):
        make_searcher(method, SPEC, target().task)


def test_unknown_method() -> None:
    with pytest.raises(UserError, match="method: 'magic' is not one of cold_gp, "):
        make_searcher("magic", SPEC, target().task)
