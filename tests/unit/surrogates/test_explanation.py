from __future__ import annotations

import numpy as np
import pytest

from bo_tuner.searchers import make_searcher
from bo_tuner.study import Measurement, Status, Trial
from bo_tuner.surrogates.explanation import feature_differences, origin, predictions
from bo_tuner.surrogates.features import design_matrix
from bo_tuner.surrogates.meta_gp import MetaGP
from tests.toy_prior import SPEC, replay, sources, target, toy_prior

POOL = target().pool


def test_expectations_use_the_earlier_trials_only() -> None:
    study = replay(make_searcher("meta_gp", SPEC, target().task, prior=toy_prior()), 6)
    first, *later = predictions(toy_prior(), POOL, study.trials)
    assert first.time_us is None
    assert first.efficiency == pytest.approx(float(np.exp(toy_prior().prior_mean(POOL).max())))
    # Neither the trial itself nor a later one moves what was expected of it.
    assert predictions(toy_prior(), POOL, study.trials[:3])[2] == later[1]
    for trial, expected in zip(study.trials[1:], later, strict=True):
        assert expected.time_us is not None
        assert expected.log_sd is not None
        assert abs(np.log(trial.measurement.time_us / expected.time_us)) < max(5 * expected.log_sd, 0.05)


def test_nothing_is_expected_of_times_while_all_trials_fail() -> None:
    failed = [Trial(at, POOL.config(at), Measurement(Status.TIMEOUT)) for at in range(3)]
    assert all(expected.time_us is None for expected in predictions(toy_prior(), POOL, failed))


def test_where_a_speed_comes_from_adds_up() -> None:
    study = replay(make_searcher("meta_gp", SPEC, target().task, prior=toy_prior()), 6)
    assert study.best is not None
    found = origin(toy_prior(), POOL, study.trials, study.best.config)
    assert [one.name for one in found.sources] == [table.task.key for table in sources()]
    model = toy_prior().fit(POOL, study.trials)
    row = POOL.index(study.best.config)
    prior = toy_prior().prior_mean(POOL)
    speeds = [-np.log(trial.measurement.time_us) for trial in study.trials if trial.measurement.ok]
    rows = [POOL.index(trial.config) for trial in study.trials if trial.measurement.ok]
    moved = float(model.pool_mean[row]) - prior[row] - float(np.mean(np.array(speeds) - prior[rows]))
    terms = sum(one.log_speed for one in found.sources) + found.parameters + found.level
    assert terms == pytest.approx(moved, abs=1e-6)


def test_features_share_the_whole_difference_of_the_prior_mean() -> None:
    mean = toy_prior().mean_at(POOL, design_matrix(SPEC, POOL)[1])
    best, worst = int(np.argmax(mean)), int(np.argmin(mean))
    found = feature_differences(toy_prior(), POOL, POOL.config(best), POOL.config(worst))
    assert sum(one.log_speed for one in found) == pytest.approx(mean[best] - mean[worst])
    sizes = [abs(one.log_speed) for one in found]
    assert sizes == sorted(sizes, reverse=True)
    assert all(one.values[0] != one.values[1] for one in found)
    assert "log_cols" not in {one.name for one in found}
    assert feature_differences(toy_prior(), POOL, POOL.config(best), POOL.config(best)) == []


def test_an_additive_mean_is_taken_apart_exactly() -> None:
    class Untrained(MetaGP):
        def design(self, pool):  # type: ignore[no-untyped-def]
            return design_matrix(SPEC, pool)

    class Additive(Untrained):
        def mean_at(self, pool, features):  # type: ignore[no-untyped-def]
            return features @ np.arange(1.0, features.shape[1] + 1)

    class Elsewhere(Untrained):
        def mean_at(self, pool, features):  # type: ignore[no-untyped-def]
            return np.zeros(len(pool))

    a, b = POOL.config(0), POOL.config(len(POOL) - 1)
    for one in feature_differences(Additive(), POOL, a, b):
        ratio = one.log_speed / (one.values[0] - one.values[1])
        assert ratio == pytest.approx(round(ratio))
    assert feature_differences(Elsewhere(), POOL, a, b) == []
