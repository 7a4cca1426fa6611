"""What a repeat says of a table, on recordings whose noise is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bo_tuner.analysis.noise import between_recordings, by_time_class, time_class, within_recording


def _recording(noise: float, seed: int, shift: float = 1.0) -> pd.DataFrame:
    """Six tasks of 400 configs; config i of a task takes best × (1 + i / 100)."""
    rng = np.random.default_rng(seed)
    rows = []
    for task, best in enumerate((8.0, 12.0, 50.0, 200.0, 300.0, 900.0)):
        true = shift * best * (1 + np.arange(400) / 100)
        final = true * np.exp(noise * rng.standard_normal(400))
        screening = true * np.exp(3 * noise * rng.standard_normal(400))
        n_final = np.where(np.arange(400) < 8, 15, 0)
        rows.append(
            pd.DataFrame(
                {
                    "task": f"t{task}",
                    "config": np.arange(400).astype(str),
                    "screening_us": screening,
                    "final_us": final,
                    "n_final": n_final,
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def test_a_repeat_finds_the_noise_and_not_the_shift_of_the_clock() -> None:
    compared = between_recordings(_recording(0.01, 0), _recording(0.01, 1, shift=1.2))
    expected = 0.6745 * 0.01 * np.sqrt(2)  # median |N(0, 2 sd²)|
    assert compared["median"].mean() == pytest.approx(expected, rel=0.15)
    assert (compared["p90"] > 2 * compared["median"]).all()
    assert (compared["rank"] > 0.99).all()
    assert (compared["kept"] > 0.95).all()


def test_equal_recordings_agree_fully() -> None:
    frame = _recording(0.0, 0)
    compared = between_recordings(frame, frame)
    assert (compared[["median", "p90", "finalists"]].to_numpy() == 0).all()
    assert (compared["kept"] == 1).all()


def test_the_reading_noise_of_finalists_is_found() -> None:
    tasks = within_recording(_recording(0.002, 0))
    assert tasks["reading_noise"].mean() == pytest.approx(0.002 * np.sqrt(10), rel=0.4)
    assert (tasks["ties"] >= 1).all()
    assert (within_recording(_recording(0.0, 0))["reading_choice"] == 1).all()


def test_classes_split_the_tasks() -> None:
    summary = by_time_class(within_recording(_recording(0.01, 0)))
    assert summary["best time"].tolist() == ["0 to 15 µs", "15 to 100 µs", "100 to 500 µs", "over 500 µs", "all"]
    assert summary["n_tasks"].tolist() == [2, 1, 2, 1, 6]
    assert time_class(15.0) == "0 to 15 µs"


def test_a_recording_without_finalists_is_no_trouble() -> None:
    frame = _recording(0.01, 0).assign(n_final=0)
    assert np.isfinite(within_recording(frame)["curse"]).all()
    assert between_recordings(frame, frame)["finalists"].isna().all()
