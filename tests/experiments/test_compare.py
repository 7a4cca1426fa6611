"""The comparison at smoke size, on tables of the toy kernel."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf, open_dict

from bo_tuner.errors import UserError
from experiments.compare import compare
from experiments.schema import CompareCfg, register
from tests.toy_kernel import ToySpec, write_toy
from tests.toy_prior import FEW_STEPS, FEW_TREES

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted(path.stem for path in (ROOT / "configs" / "experiment").iterdir())
SMALL = ["kernel.name=tests.toy_kernel", "shapes.n_tasks=2", "trials=3", "n_seeds=2", "n_resamples=50"]


#: A device that no toy task of ``toy_data`` ran on, so that experiments can leave one out.
OTHER = "nvidia_h200_72_sms"
#: Options of each prior mean that train it in no time.
FEW: dict[str, dict[str, object]] = {
    "trees": FEW_TREES,
    "mlp": {"n_folds": 2, "n_hidden": 8, "n_steps": 5},
    "kernel_regression": {"n_steps": 2},
    "none": {},
}


@pytest.fixture(scope="module")
def two_devices(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy tables and train tables of a second device."""
    root = tmp_path_factory.mktemp("two") / "data"
    shutil.copytree(toy_data, root)
    write_toy(root / "toy" / OTHER / "train.parquet", ToySpec(), 4, 1, OTHER)
    return root


def smoke_cfg(toy_data: Path, toy_prior_file: Path, *overrides: str) -> CompareCfg:
    register()
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("compare", overrides=[*overrides, *SMALL, f"tables={toy_data}"])
    for method in cfg.methods.values():
        if method.surrogate is not None and "prior" in method.surrogate:
            method.surrogate.prior = str(toy_prior_file)
        if method.surrogate is not None and "sources" in method.surrogate:
            with open_dict(method.surrogate):
                method.surrogate.cache = str(toy_prior_file.parent)
                method.surrogate.covariance_options = FEW_STEPS
                method.surrogate.mean_options = FEW[method.surrogate.mean]
    return cast(CompareCfg, cfg)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_runs(experiment: str, two_devices: Path, toy_prior_file: Path, tmp_path: Path) -> None:
    cfg = smoke_cfg(two_devices, toy_prior_file, f"experiment={experiment}")
    compare(cfg, tmp_path)
    studies = pd.read_parquet(tmp_path / "studies.parquet")
    assert studies.groupby("method").size().to_dict() == dict.fromkeys(cfg.methods, 2 * 2 * 3)
    assert studies["efficiency"].between(0, 1).all()
    run = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    (checksum,) = run["tables"].values()
    assert len(checksum) == 64
    assert run["versions"]["torch"]
    assert OmegaConf.load(tmp_path / "cfg.yaml").name == experiment
    assert (tmp_path / "summary.md").read_text(encoding="utf-8").count("\n") == 2 + 3 * (len(cfg.methods) + 1)
    for plot in ("sample_efficiency.png", "regret.png"):
        assert (tmp_path / plot).stat().st_size > 5000


def test_same_cfg_gives_the_same_studies(toy_data: Path, toy_prior_file: Path, tmp_path: Path) -> None:
    cfg = smoke_cfg(toy_data, toy_prior_file, "experiment=smoke")
    first, second = (compare(cfg, tmp_path).drop(columns="ask_s") for _ in range(2))
    pd.testing.assert_frame_equal(first, second)


def test_no_method_is_refused(toy_data: Path, toy_prior_file: Path, tmp_path: Path) -> None:
    cfg = smoke_cfg(toy_data, toy_prior_file, "~method@methods.meta_gp", "~method@methods.random")
    with pytest.raises(UserError, match="methods: is empty"):
        compare(cfg, tmp_path)


def test_command_line_ends_with_one_line_for_bad_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.compare", "tables=/nowhere", f"hydra.run.dir={tmp_path}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 2
    assert result.stderr == "experiments.compare: error: --tables: /nowhere is no folder\n"
