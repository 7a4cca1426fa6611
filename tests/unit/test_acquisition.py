from __future__ import annotations

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.optim import optimize_acqf_discrete

from bo_tuner.acquisition import acquisition_names, choose, score
from bo_tuner.errors import UserError
from bo_tuner.surrogates.pool_model import PoolGP, pool_inputs
from tests.toy_prior import replay, target, toy_prior


def fitted() -> tuple[PoolGP, torch.Tensor, float]:
    from bo_tuner.searchers import make_searcher
    from tests.toy_prior import SPEC

    trials = replay(make_searcher("random", SPEC, target().task), 5).trials
    best = max(-np.log(trial.measurement.time_us) for trial in trials)
    return toy_prior().fit(target().pool, trials), pool_inputs(target().pool), float(best)


@pytest.mark.parametrize("name", acquisition_names())
def test_every_acquisition_scores_the_pool_deterministically(name: str) -> None:
    model, inputs, best = fitted()
    scores = score(name, model, inputs, best, seed=3)
    assert scores.shape == (len(target()),)
    assert np.isfinite(scores).sum() >= min(len(target()), 512)
    np.testing.assert_array_equal(scores, score(name, model, inputs, best, seed=3))


def test_log_ei_agrees_with_botorch_over_discrete_choices() -> None:
    model, inputs, best = fitted()
    candidate, _ = optimize_acqf_discrete(LogExpectedImprovement(model, best), 1, inputs)
    chosen = choose(score("log_ei", model, inputs, best), np.zeros(len(inputs)), np.ones(len(inputs), dtype=bool))
    assert int(candidate[0, 0]) == chosen


@pytest.mark.parametrize("name", ["ei", "log_ei", "pi", "ucb", "thompson"])
def test_exploration_is_a_model_with_wider_deviations(name: str) -> None:
    model, inputs, best = fitted()
    wider = fitted()[0]
    wider.pool_variance = 9.0 * model.pool_variance
    rows = inputs[:1] if name == "thompson" else inputs  # more rows are sampled jointly, not from `pool_variance`
    widened = score(name, model, rows, best, exploration=3.0)
    np.testing.assert_allclose(widened, score(name, wider, rows, best), rtol=1e-9)
    assert not np.allclose(widened, score(name, model, rows, best))


def test_exploration_leaves_the_posterior_mean() -> None:
    model, inputs, best = fitted()
    plain, widened = (score("posterior_mean", model, inputs, best, exploration=factor) for factor in (1.0, 3.0))
    np.testing.assert_array_equal(plain, widened)


def test_thompson_depends_on_the_seed() -> None:
    model, inputs, best = fitted()
    assert not np.array_equal(score("thompson", model, inputs, best, 1), score("thompson", model, inputs, best, 2))


def test_ties_go_to_the_prior_then_to_the_lower_row() -> None:
    scores = np.array([1.0, 2.0, 2.0, 2.0, 0.0])
    prior = np.array([9.0, 0.0, 5.0, 5.0, 9.0])
    allowed = np.ones(5, dtype=bool)
    assert choose(scores, prior, allowed) == 2
    allowed[2] = False
    assert choose(scores, prior, allowed) == 3
    assert choose(np.full(5, -np.inf), np.zeros(5), allowed) == 0
    with pytest.raises(ValueError, match="no row"):
        choose(scores, prior, np.zeros(5, dtype=bool))


def test_unknown_name() -> None:
    model, inputs, best = fitted()
    with pytest.raises(UserError, match="acquisition: 'best' is not one of ei, "):
        score("best", model, inputs, best)
