from __future__ import annotations

import numpy as np
import pytest

from bo_tuner.storage.alignment import pool_codes
from bo_tuner.surrogates.features import design_matrix
from bo_tuner.surrogates.regression_mean import RegressionMean, RegressionOptions, _fit_metric, fit_regression_mean
from bo_tuner.task import device_named
from tests.toy_prior import SPEC, examples, target

EXAMPLES = examples()
SHAPES = [task.shape_key for task in EXAMPLES.tasks]
FEW = RegressionOptions(n_folds=2, n_steps=10)


def two_tasks(shrinkage: float = 0.0) -> RegressionMean:
    """Tasks at 0 and 1, three configs; the second task lacks the last."""
    values = np.array([[-1.0, 0.0, -0.5], [0.0, -1.0, np.nan]], dtype=np.float16)
    nothing = np.empty(0, dtype=np.int64)
    return RegressionMean(np.array([3, 5, 9]), values, nothing, np.array([[0.0], [1.0]]), np.array([[3.0]]), shrinkage)


def test_near_tasks_count_more() -> None:
    codes = np.array([3, 5])
    assert two_tasks().at(np.array([0.0]), codes) == pytest.approx([-1.0, 0.0], abs=1e-3)
    assert two_tasks().at(np.array([0.5]), codes) == pytest.approx([-0.5, -0.5], abs=1e-3)
    assert two_tasks().at(np.array([99.0]), codes) == pytest.approx([0.0, -1.0], abs=1e-3)


def test_missing_configs_shrink_to_a_low_value() -> None:
    mean = two_tasks(shrinkage=0.1)
    unknown, rare = mean.at(np.array([0.5]), np.array([4, 9]))
    assert unknown == pytest.approx(-0.75)  # the lower quartile of both tasks
    assert unknown < rare < -0.5


def test_the_metric_learns_what_matters() -> None:
    """Of two descriptors only the first moves the configs, so only along it are tasks told apart."""
    rng = np.random.default_rng(0)
    at = rng.uniform(-2, 2, (60, 2))
    ideal = np.linspace(-2, 2, 20)
    values = -np.abs(at[:, :1] - ideal).astype(np.float16)
    shapes = np.array([f"shape {row}" for row in range(60)])
    metric, shrinkage = _fit_metric(at, values, shapes, RegressionOptions())
    along = np.linalg.norm(metric, axis=1)
    assert along[0] > 3 * along[1]
    assert shrinkage < 0.05


def test_the_device_is_part_of_a_task() -> None:
    mean, _ = fit_regression_mean(EXAMPLES, SHAPES, FEW)
    part = SPEC.pool(SPEC.task(target().task.shape, device_named("nvidia_h200").with_sms(8)))
    codes = pool_codes(part)
    whole = mean.predict(target().pool, design_matrix(SPEC, target().pool)[1])
    there = mean.predict(part, design_matrix(SPEC, part)[1])
    _, at, own = np.intersect1d(pool_codes(target().pool), codes, return_indices=True)
    assert not np.allclose(whole[at], there[own])
