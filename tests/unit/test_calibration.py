from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from bo_tuner.calibration import CHECKED_TRIALS, calibrate_distance
from bo_tuner.searchers import make_searcher
from bo_tuner.searchers.base import SelfAssessing
from bo_tuner.searchers.bayesian import BayesianSearcher
from bo_tuner.study import Measurement, Status, Trial
from bo_tuner.surrogates.meta_gp import MetaGP
from bo_tuner.tuner import assess
from tests.toy_prior import FEW_STEPS, FEW_TREES, SPEC, recorded, replay, sources, target, toy_prior

POOL = target().pool


def fresh_prior() -> MetaGP:
    """The toy prior, not shared, so that it may be changed."""
    return copy.copy(toy_prior())


def test_calibration_holds_on_the_sources_and_tells_how() -> None:
    surrogate, heard = fresh_prior(), []
    found = calibrate_distance(surrogate, sources(), progress=lambda stage, share: heard.append((stage, share)))
    assert heard == [("distance to the best", 1.0)]
    assert found.shape == (len(sources()) * len(CHECKED_TRIALS), 4)
    assert sorted(set(found[:, 0])) == list(CHECKED_TRIALS)
    factors = surrogate.distance_factors
    assert factors is not None
    for n in CHECKED_TRIALS:
        _, predicted, bounds, true = found[found[:, 0] == n].T
        at = np.log([float(n)])
        assert (predicted * factors.mean(at)).mean() == pytest.approx(true.mean(), abs=1e-9)
        assert (true <= (bounds + factors.floor) * factors.high(at) + 1e-9).mean() >= 0.95
    assert toy_prior().distance_factors is None


def test_few_tasks_are_spread_over_the_sources() -> None:
    surrogate = fresh_prior()
    assert calibrate_distance(surrogate, sources(), n_tasks=3).shape == (3 * len(CHECKED_TRIALS), 4)


def test_a_source_is_judged_by_a_prior_that_knows_its_shape_from_nowhere() -> None:
    both = sources() + recorded(8, 1, "nvidia_h200_72_sms")
    surrogate = MetaGP(mean_options=FEW_TREES, covariance_options=FEW_STEPS).meta_fit(both, SPEC)
    task = both[2].task
    twin = surrogate.without(task)
    assert surrogate.prior is not None
    assert twin.prior is not None
    kept = [at for at, table in enumerate(both) if table.task.shape_key != task.shape_key]
    assert len(kept) == len(both) - 2
    np.testing.assert_array_equal(twin.prior.residuals.values, surrogate.prior.residuals.values[kept])
    assert not np.array_equal(twin.prior_mean(both[2].pool), surrogate.prior_mean(both[2].pool))
    assert len(surrogate.prior.residuals.values) == len(both)
    with pytest.raises(ValueError, match="just trained"):
        surrogate.without(target().task)


def test_factors_are_kept_in_a_file_and_a_file_without_them_loads(tmp_path: Path) -> None:
    surrogate = fresh_prior()
    surrogate.save(tmp_path / "old.safetensors")
    assert MetaGP.load(tmp_path / "old.safetensors", SPEC).distance_factors is None
    calibrate_distance(surrogate, sources(), n_tasks=4)
    surrogate.save(tmp_path / "new.safetensors")
    loaded = MetaGP.load(tmp_path / "new.safetensors", SPEC)
    task = target().task
    a, b, c = (assessed(prior) for prior in (surrogate, loaded, toy_prior()))
    assert a == b
    assert a.calibrated
    assert not c.calibrated
    with pytest.raises(ValueError, match="just trained"):
        loaded.without(task)


def assessed(prior: MetaGP):  # type: ignore[no-untyped-def]
    searcher = make_searcher("meta_gp", SPEC, target().task, prior=prior)
    distance = assess(replay(searcher, 6), searcher).distance
    assert distance is not None
    return distance


def test_trials_make_it_surer() -> None:
    searcher = BayesianSearcher(POOL, toy_prior())
    assert searcher.expected_distance(POOL.config(0)) is None
    evaluated, highs = replay(searcher, 12).trials, []
    again = BayesianSearcher(POOL, toy_prior())
    for trial in evaluated:
        again.tell(trial)
        highs.append(again.expected_distance(trial.config))
    best = min(evaluated, key=lambda trial: trial.measurement.time_us)
    last = again.expected_distance(best.config)
    assert last is not None
    assert highs[0] is not None
    assert last.mean < highs[0].mean
    assert last.low <= last.mean <= last.high


def test_failed_configs_and_their_siblings_are_out_of_the_race() -> None:
    searcher = BayesianSearcher(POOL, toy_prior())
    searcher.tell(Trial(0, POOL.config(0), Measurement(Status.CORRECT, (10.0,))))
    before = searcher.expected_distance(POOL.config(0))
    searcher.tell(Trial(1, POOL.config(9), Measurement(Status.TIMEOUT)))
    searcher.tell(Trial(2, POOL.config(30), Measurement(Status.COMPILE)))
    after = searcher.expected_distance(POOL.config(0))
    assert before is not None
    assert after is not None
    assert before.n_configs == len(POOL)
    assert after.n_configs == len(POOL) - 1 - int(searcher.doubtful.sum())


def test_who_cannot_tell_leaves_the_study_as_it_is() -> None:
    random = make_searcher("random", SPEC, target().task)
    assert not isinstance(random, SelfAssessing)
    study = replay(random, 3)
    assert assess(study, random) is study

    class Other(MetaGP):
        """Makes models that are no pool's."""

        def fit(self, pool, trials):  # type: ignore[no-untyped-def]
            return torch.nn.Identity()

    surrogate = Other()
    surrogate.spec, surrogate.prior = SPEC, dataclasses.replace(toy_prior().prior)  # type: ignore[type-var]
    searcher = BayesianSearcher(POOL, surrogate)
    searcher.tell(Trial(0, POOL.config(0), Measurement(Status.CORRECT, (10.0,))))
    assert searcher.expected_distance(POOL.config(0)) is None
