"""Plots are judged by the data of their lines, not by pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from bo_tuner.analysis import plots

CURVES = pd.DataFrame(
    {
        "method": ["meta_gp"] * 20 + ["random"] * 20,
        "trial": [*range(1, 21)] * 2,
        "mean": np.r_[np.linspace(0.9, 1, 20), np.linspace(0.4, 0.8, 20)],
    }
).assign(low=lambda frame: frame["mean"] - 0.02, high=lambda frame: frame["mean"] + 0.02)


def test_sample_efficiency_draws_means_bands_and_the_grey_reference(tmp_path: Path) -> None:
    reference = pd.DataFrame({"trial": range(1, 21), "mean": np.linspace(0.4, 0.8, 20)})
    path = tmp_path / "new" / "plot.png"
    with plots.figure(path) as (axes,):
        assert plots.sample_efficiency(CURVES, axes, random=reference, title="toy") is axes
        lines = {str(line.get_label()): line for line in axes.lines}
        np.testing.assert_allclose(lines["meta_gp"].get_ydata(), CURVES["mean"][:20])
        assert lines["random (expected)"].get_color() == plots.GREY
        assert lines["meta_gp"].get_linestyle() != lines["random"].get_linestyle()
        assert len(axes.collections) == 2
        assert axes.get_xticks().tolist() == [1, 5, 10, 15, 20]
    assert path.read_bytes().startswith(b"\x89PNG")


def test_regret_is_on_a_log_axis(tmp_path: Path) -> None:
    with plots.figure(tmp_path / "plot.pdf", n_columns=2) as (axes, _):
        plots.regret(CURVES, axes)
        assert axes.get_yscale() == "log"


def test_short_runs_get_a_tick_a_trial(tmp_path: Path) -> None:
    with plots.figure(tmp_path / "plot.png") as (axes,):
        plots.sample_efficiency(CURVES[CURVES["trial"] <= 3], axes)
        assert axes.get_xticks().tolist() == [1, 2, 3]


def test_a_dot_a_task_and_a_step_a_method(tmp_path: Path) -> None:
    studies = pd.DataFrame({"trial": [1, 2, 2], "final_us": [9.0, 10.0, 100.0], "efficiency": [0.1, 0.9, 1.0]})
    shares = CURVES.rename(columns={"mean": "share"})
    with plots.figure(tmp_path / "plot.png", n_columns=2) as (scatter, steps):
        plots.efficiency_by_time(studies, scatter)
        plots.trials_needed(shares, steps)
        assert len(scatter.collections[0].get_offsets()) == 2
        assert scatter.get_xscale() == "log"
        assert [line.get_label() for line in steps.lines] == ["meta_gp", "random"]
