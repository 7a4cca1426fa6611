"""Curves and intervals from tidy frames."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bo_tuner.analysis.curves import cube, mean_curves, trials_to, with_regret
from bo_tuner.analysis.statistics import bootstrap_band, mean_interval


def studies(values: np.ndarray, method: str = "a") -> pd.DataFrame:
    index = pd.MultiIndex.from_product([range(n) for n in values.shape], names=["task", "seed", "trial"])
    frame = pd.DataFrame({"efficiency": values.ravel()}, index=index).reset_index()
    return frame.assign(method=method, trial=frame["trial"] + 1)


def test_mean_is_over_tasks_of_means_over_seeds() -> None:
    values = np.random.default_rng(0).uniform(size=(6, 3, 4))
    curves = mean_curves(studies(values), n_resamples=200)
    np.testing.assert_allclose(curves["mean"], values.mean(axis=1).mean(axis=0))
    assert (curves["low"] <= curves["mean"]).all()
    assert (curves["mean"] <= curves["high"]).all()
    assert curves["trial"].tolist() == [1, 2, 3, 4]


def test_row_order_does_not_matter_but_method_order_is_kept() -> None:
    values = np.random.default_rng(0).uniform(size=(4, 2, 3))
    frame = pd.concat([studies(values, "late"), studies(values, "early")])
    shuffled = frame.sample(frac=1, random_state=1).sort_values("method", ascending=False, kind="stable")
    pd.testing.assert_frame_equal(mean_curves(frame, n_resamples=50), mean_curves(shuffled, n_resamples=50))


def test_study_that_ended_early_keeps_its_last_value() -> None:
    frame = studies(np.array([[[0.5, 0.6, 0.7]], [[0.2, 0.3, 0.4]]]))
    short = frame[~((frame["task"] == 1) & (frame["trial"] == 3))]
    np.testing.assert_allclose(cube(short, "a")[1, 0], [0.2, 0.3, 0.3])


def test_faults_of_the_frame_are_named() -> None:
    frame = studies(np.ones((2, 2, 3)))
    with pytest.raises(ValueError, match="column seed is missing"):
        cube(frame.drop(columns="seed"), "a")
    with pytest.raises(ValueError, match="a has 3 runs, not 2 seeds on each of 2 tasks"):
        cube(frame[~((frame["task"] == 1) & (frame["seed"] == 1))], "a")


def test_regret_has_a_floor_and_a_ceiling() -> None:
    frame = with_regret(pd.DataFrame({"efficiency": [1.0, 0.5, 0.0]}))
    np.testing.assert_allclose(frame["regret"], [1e-3, np.log(2), 3.0])


def test_share_of_tasks_that_have_reached_a_target_never_falls() -> None:
    values = np.array([[[0.9, 0.99, 0.97]], [[0.5, 0.6, 0.99]], [[0.1, 0.2, 0.3]]])
    shares = trials_to(studies(values), 0.98)
    np.testing.assert_allclose(shares["share"], [0, 1 / 3, 2 / 3])


def test_band_is_repeatable_and_covers_the_truth() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for seed in range(60):
        values = 0.5 + 0.1 * rng.standard_normal((30, 1, 1)) + 0.02 * rng.standard_normal((30, 3, 1))
        low, high = bootstrap_band(values, np.random.default_rng(seed), n_resamples=300)
        hits += int(low[0] <= 0.5 <= high[0])
    assert hits >= 50
    again = bootstrap_band(values, np.random.default_rng(59), n_resamples=300)
    np.testing.assert_array_equal(again, (low, high))


def test_empty_cube_is_refused() -> None:
    with pytest.raises(ValueError, match="holds no value"):
        bootstrap_band(np.empty((0, 1, 5)), np.random.default_rng(0))


def test_interval_of_equal_values_is_a_point() -> None:
    assert mean_interval(np.full(5, 0.9), np.random.default_rng(0)) == pytest.approx((0.9, 0.9))
    low, high = mean_interval(np.arange(20.0), np.random.default_rng(0))
    assert low < 9.5 < high
