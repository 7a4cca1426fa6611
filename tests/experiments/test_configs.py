"""Every YAML of configs/ composes; what is misspelt or of a wrong type is refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf

from bo_tuner.acquisition import acquisition_names
from bo_tuner.kernels import load_kernel
from bo_tuner.searchers import make_searcher, method_names
from bo_tuner.task import device_named
from experiments.build import searcher_factory
from experiments.schema import register
from tests.toy_prior import SPEC, target

CONFIGS = Path(__file__).parents[2] / "configs"
GROUPS = sorted(path.name for path in CONFIGS.iterdir() if path.is_dir())
PLACES = {
    "method": "method@methods.meta_gp",
    "searcher": "searcher@methods.meta_gp.searcher",
    "surrogate": "surrogate@methods.meta_gp.surrogate",
    "acquisition": "acquisition@methods.meta_gp.acquisition",
}
OPTIONS = [(group, path.stem) for group in GROUPS for path in sorted((CONFIGS / group).iterdir())]


def composed(*overrides: str, folder: Path = CONFIGS) -> DictConfig:
    register()
    with initialize_config_dir(str(folder), version_base="1.3"):
        return compose("compare", overrides=list(overrides))


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids=["/".join(pair) for pair in OPTIONS])
def test_every_option_composes(group: str, option: str) -> None:
    place = PLACES.get(group, group)
    cfg = composed(f"{place}={option}", *(["methods.meta_gp.searcher.method=random"] if option == "registered" else []))
    assert OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("trails=3", "Could not override 'trails'"),
        ("shapes.n_task=3", "Could not override 'shapes.n_task'"),
        ("trials=many", "trials=many"),
        ("n_seeds=1.5", "n_seeds=1.5"),
        ("kernel=gem", "kernel/gem"),
        ("~method@methods.cold_gp", "methods.cold_gp"),
    ],
)
def test_mistakes_are_named(override: str, told: str) -> None:
    with pytest.raises(ConfigCompositionException) as caught:
        composed(override)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("line", "told"), [("trails: 3", "trails"), ("shapes: {n_task: 3}", "n_task"), ("trials: many", "many")]
)
def test_mistakes_in_a_yaml_are_named(line: str, told: str, tmp_path: Path) -> None:
    shutil.copytree(CONFIGS, tmp_path / "configs")
    (tmp_path / "configs" / "experiment" / "bad.yaml").write_text(f"# @package _global_\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigCompositionException) as caught:
        composed("experiment=bad", folder=tmp_path / "configs")
    assert told in f"{caught.value} {caught.value.__cause__}"


def test_names_in_yaml_exist() -> None:
    for path in (CONFIGS / "kernel").iterdir():
        assert load_kernel(OmegaConf.load(path).name).name == path.stem
    for path in (CONFIGS / "device").iterdir():
        assert device_named(OmegaConf.load(path).name).key == path.stem
    assert sorted(path.stem for path in (CONFIGS / "acquisition").iterdir()) == acquisition_names()


#: A method that trains its own prior is one of experiments only.
REGISTERED = sorted({path.stem for path in (CONFIGS / "method").iterdir()} - {"meta_trained"})


@pytest.mark.parametrize("method", REGISTERED)
def test_method_does_what_the_registered_one_does(method: str, toy_prior_file: Path) -> None:
    from tests.toy_prior import replay, toy_prior

    assert method in method_names()
    place = f"methods.{method}"
    cfg = composed(f"+method@{place}={method}") if method not in ("meta_gp", "random") else composed()
    chosen = cfg.methods[method]
    if chosen.surrogate is not None and "prior" in chosen.surrogate:
        chosen.surrogate.prior = str(toy_prior_file)
    ours = searcher_factory(method, chosen, SPEC)(SPEC, target().task, 3, None)
    theirs = make_searcher(method, SPEC, target().task, seed=3, prior=toy_prior())
    configs = [[trial.config for trial in replay(one, 8).trials] for one in (ours, theirs)]
    assert configs[0] == configs[1]
