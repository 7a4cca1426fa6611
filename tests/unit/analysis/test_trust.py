"""Calibration and failures, out of frames whose answer is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bo_tuner.analysis.trust import calibration, worst_tasks


def frame(efficiency: list[float], tried: list[float], **columns: object) -> pd.DataFrame:
    n = len(efficiency)
    base = {"task": [f"t{i}" for i in range(n)], "trial": 2, "final_us": 10.0, "efficiency": efficiency, "tried": tried}
    return pd.DataFrame({**base, **columns})


def test_calibration_of_a_model_that_is_twice_too_sure() -> None:
    z = 2.0 * np.random.default_rng(0).standard_normal(4000)
    n = len(z)
    found = calibration(
        frame([0.99] * n, [0.99] * n, z=z, distance=0.01, distance_bound=np.tile([0.02, 0.005], n // 2))
    )
    assert found["z sd"] == pytest.approx(2.0, rel=0.05)
    assert found["z within 95 %"] == pytest.approx(0.673, abs=0.03)
    assert found["distance said"] == pytest.approx(found["distance true"])
    assert found["bound held"] == 0.5


def test_the_first_trial_has_no_say_in_z() -> None:
    studies = frame([1.0, 1.0], [1.0, 1.0], z=[50.0, 0.0], distance=0.0, distance_bound=0.0, trial=[1, 2])
    assert calibration(studies)["z sd"] == 0.0


def test_worst_tasks_tell_noise_from_search() -> None:
    worst = worst_tasks(frame([0.99, 0.9, 0.8], [0.99, 0.99, 0.81]), 2)
    assert worst["task"].tolist() == ["t2", "t1"]
    assert worst["reason"].str.partition(":")[0].tolist() == ["search", "noise"]
