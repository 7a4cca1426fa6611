"""Redrawn readings, on tables whose noise is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments.noise import noise_table, redrawn
from tests.toy_prior import target

TABLE = target()


def test_exact_readings_choose_the_best_every_time() -> None:
    exact = replace(TABLE, reading_us=TABLE.final_us)
    np.testing.assert_array_equal(redrawn(exact, exact.efficiencies, 20, np.random.default_rng(0)), 1.0)


def test_noise_costs_what_the_configs_it_confuses_are_apart() -> None:
    errors = np.where(np.arange(len(TABLE)) % 2 == 0, 0.5, -0.5)
    noisy = replace(TABLE, reading_us=TABLE.final_us * np.exp(errors), n_final=np.where(TABLE.correct, 9, 0))
    chosen = redrawn(noisy, np.array([1.0, 0.9]), 4000, np.random.default_rng(0))
    # The second reads faster when it alone has the lower error, which is one draw of four.
    assert np.mean(chosen == 0.9) == pytest.approx(0.25, abs=0.03)


def test_nothing_correct_was_tried() -> None:
    np.testing.assert_array_equal(redrawn(TABLE, np.zeros(3), 5, np.random.default_rng(0)), 0.0)


def test_both_rows_are_told_as_recorded_and_redrawn() -> None:
    studies = pd.DataFrame({"task": TABLE.task.key, "trial": [1, 2], "tried": [0.7, 0.6], "efficiency": [0.7, 0.7]})
    found = noise_table([TABLE], studies, n_draws=10).set_index("choice among")
    assert found.loc["the tried configs", "mean"] == "0.7000"
    assert found.loc["the tried configs", "mean, redrawn"] == "0.7000 ± 0.0000"
    assert float(found.loc["all configs", "mean"]) > 0.9
