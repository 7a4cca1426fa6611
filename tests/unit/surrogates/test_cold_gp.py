from __future__ import annotations

import pytest
import torch

from bo_tuner.errors import UserError
from bo_tuner.study import Measurement, Status, Trial
from bo_tuner.surrogates.cold_gp import ColdGP
from tests.toy_kernel import runtime_us
from tests.toy_prior import target

POOL = target().pool
TIMES = runtime_us(POOL)
TOLD = [
    Trial(at, POOL.config(row), Measurement(Status.CORRECT, (float(TIMES[row]),)))
    for at, row in enumerate(range(0, len(POOL), len(POOL) // 18))
]


def test_it_learns_from_its_trials() -> None:
    model = ColdGP().fit(POOL, TOLD)
    truth = -torch.log(torch.as_tensor(TIMES))
    assert torch.corrcoef(torch.stack([model.pool_mean, truth]))[0, 1] > 0.5


def test_fitting_is_deterministic_and_better_than_the_prior() -> None:
    torch.testing.assert_close(ColdGP().fit(POOL, TOLD).pool_mean, ColdGP().fit(POOL, TOLD).pool_mean, rtol=0, atol=0)
    truth = -torch.log(torch.as_tensor(TIMES))
    fitted, unfitted = (ColdGP(n_steps=n).fit(POOL, TOLD).pool_mean for n in (12, 0))
    assert (fitted - truth).square().mean() < (unfitted - truth).square().mean()


def test_one_trial_is_enough_and_the_prior_is_flat() -> None:
    assert not ColdGP().prior_mean(POOL).any()
    assert torch.isfinite(ColdGP().fit(POOL, TOLD[:1]).pool_mean).all()


@pytest.mark.parametrize("options", [{"noise_sd": -1.0}, {"n_steps": -1}])
def test_bad_arguments(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        ColdGP(**options)  # type: ignore[arg-type]
