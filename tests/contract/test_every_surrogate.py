"""What every surrogate promises."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.models.model import Model

from bo_tuner.study import Measurement, Status, Trial
from bo_tuner.surrogates import Surrogate, make_surrogate, surrogate_names
from bo_tuner.surrogates.pool_model import pool_inputs
from tests.toy_prior import SPEC, sources, target, toy_prior

POOL = target().pool
TOLD = [
    Trial(at, POOL.config(row), Measurement(Status.CORRECT, (time_us,)))
    for at, (row, time_us) in enumerate([(3, 20.0), (90, 14.0), (200, 31.0)])
]
pytestmark = pytest.mark.parametrize("name", surrogate_names())


@functools.cache
def ready(name: str) -> Surrogate:
    return toy_prior() if name == "meta_gp" else make_surrogate(name).meta_fit(sources(), SPEC)


def test_the_prior_ranks_the_whole_pool(name: str) -> None:
    mean = ready(name).prior_mean(POOL)
    assert mean.shape == (len(POOL),)
    assert mean.dtype == np.float64
    assert np.isfinite(mean).all()


def test_it_returns_a_botorch_model_in_double_precision(name: str) -> None:
    model = ready(name).fit(POOL, TOLD)
    assert isinstance(model, Model)
    assert model.num_outputs == 1
    posterior = model.posterior(pool_inputs(POOL).unsqueeze(-2))
    assert posterior.mean.shape == (len(POOL), 1, 1)
    assert posterior.mean.dtype == torch.float64
    assert (posterior.variance > 0).all()


def test_botorch_acquisitions_take_it(name: str) -> None:
    model, inputs = ready(name).fit(POOL, TOLD), pool_inputs(POOL)
    best = -float(np.log(14.0))
    assert torch.isfinite(LogExpectedImprovement(model, best)(inputs.unsqueeze(-2))).all()
    with torch.no_grad():
        assert torch.isfinite(qLogExpectedImprovement(model, best)(inputs[:4].reshape(2, 2, -1))).all()


def test_observed_configs_keep_their_order(name: str) -> None:
    mean = ready(name).fit(POOL, TOLD).posterior(pool_inputs(POOL).unsqueeze(-2)).mean[:, 0, 0]
    assert mean[90] > mean[3] > mean[200]


def test_fitting_twice_is_the_same(name: str) -> None:
    inputs = pool_inputs(POOL).unsqueeze(-2)
    first, second = (ready(name).fit(POOL, TOLD).posterior(inputs).mean for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_without_a_correct_trial_there_is_nothing_to_fit(name: str) -> None:
    with pytest.raises(ValueError, match="nothing to fit"):
        ready(name).fit(POOL, [Trial(0, POOL.config(0), Measurement(Status.TIMEOUT))])
