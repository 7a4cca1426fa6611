"""The page of results at smoke size, on tables of the toy kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from bo_tuner.errors import UserError
from experiments.report import Run, report
from experiments.schema import ReportCfg, register

ROOT = Path(__file__).parents[2]
SMALL = ["shapes.n_tasks=2", "trials=3", "n_seeds=1", "n_resamples=50"]


@pytest.fixture(scope="module")
def cfg(toy_data: Path, toy_prior_file: Path, tmp_path_factory: pytest.TempPathFactory) -> ReportCfg:
    """The shipped cfg, less what trains priors, for the toy kernel."""
    register()
    folder = tmp_path_factory.mktemp("report")
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        shipped = compose("report")
    priors = [f"methods.{name}.surrogate.prior={toy_prior_file}" for name in ("meta_gp", "prior_only", "portfolio")]
    return ReportCfg(
        kernels=["tests.toy_kernel"],
        runs={"rivals_thin": list(shipped.runs["rivals_thin"])},
        overrides=[*SMALL, f"tables={toy_data}", *priors],
        folder=str(folder / "runs"),
        docs=str(folder / "docs"),
        n_jobs=2,
    )


def test_page_and_plot_are_written_and_nothing_runs_twice(cfg: ReportCfg, monkeypatch: pytest.MonkeyPatch) -> None:
    page = report(cfg)
    text = page.read_text(encoding="utf-8")
    for title in (
        "# Results",
        "## Unseen shapes",
        "## How sure it is",
        "## What the noise of the readings leaves",
        "## Where it fails: toy_kernel, nvidia_h200",
    ):
        assert f"\n{title}\n" in f"\n{text}"
    assert (page.parent / "results_toy_kernel.png").stat().st_size > 5000
    monkeypatch.setattr("subprocess.run", None)
    assert report(cfg) == page


def test_a_run_that_fails_ends_the_report_with_its_message(cfg: ReportCfg, tmp_path: Path) -> None:
    run = Run("rivals_thin", "tests.toy_kernel", "nvidia_h200", ["trials=many"], tmp_path)
    with pytest.raises(UserError, match=r"^rivals_thin/toy_kernel/nvidia_h200: "):
        run.start()


def test_every_experiment_of_the_shipped_report_exists() -> None:
    register()
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        shipped = compose("report")
        for experiment, devices in shipped.runs.items():
            for device in devices:
                compose("compare", overrides=[f"experiment={experiment}", f"device={device}"])
