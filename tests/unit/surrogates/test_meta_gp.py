from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.protocol import verify
from bo_tuner.searchers import make_searcher
from bo_tuner.space import Pool
from bo_tuner.storage.checkpoint import read_checkpoint, write_checkpoint
from bo_tuner.storage.tables import TaskTable
from bo_tuner.study import Measurement, Status, Trial
from bo_tuner.surrogates import make_surrogate
from bo_tuner.surrogates.meta_gp import MetaGP
from tests.toy_kernel import ToySpec
from tests.toy_prior import FEW_STEPS, FEW_TREES, SPEC, recorded, replay, sources, target, toy_prior

POOL = target().pool


def trained(tables: tuple[TaskTable, ...] | None = None, **options: object) -> MetaGP:
    few = FEW_TREES if options.get("mean", "trees") == "trees" else {}
    surrogate = MetaGP(mean_options=few, covariance_options=FEW_STEPS, **options)  # type: ignore[arg-type]
    return surrogate.meta_fit(tables or sources(), SPEC)


def trials(*pairs: tuple[int, float]) -> list[Trial]:
    return [
        Trial(at, POOL.config(row), Measurement(Status.CORRECT, (time_us,))) for at, (row, time_us) in enumerate(pairs)
    ]


def test_it_beats_random_search_on_shapes_it_has_not_seen() -> None:
    tables = recorded(3, 2)
    ours = verify(SPEC, tables, "meta_gp", prior=toy_prior(), n_trials=6)
    random = verify(SPEC, tables, "random", n_trials=6, seeds=range(5))
    assert ours[ours["trial"] == 6]["efficiency"].mean() > random[random["trial"] == 6]["efficiency"].mean()


def test_nothing_of_the_target_is_used_but_the_readings_told() -> None:
    """The model of a task whose hidden times are ten times longer is the same, shifted."""
    told = trials((3, 10.0), (40, 12.0))
    slower = trials((3, 100.0), (40, 120.0))
    a, b = toy_prior().fit(POOL, told), toy_prior().fit(POOL, slower)
    # The noise of a reading depends on its length, so only nearly the same.
    torch.testing.assert_close(a.pool_mean - np.log(10.0), b.pool_mean, atol=0.02, rtol=0)


def test_failed_trials_teach_nothing() -> None:
    told = trials((3, 10.0), (40, 12.0))
    failed = Trial(2, POOL.config(50), Measurement(Status.RUNTIME))
    a, b = toy_prior().fit(POOL, told), toy_prior().fit(POOL, [*told, failed])
    torch.testing.assert_close(a.pool_mean, b.pool_mean)
    with pytest.raises(ValueError, match="nothing to fit"):
        toy_prior().fit(POOL, [failed])


def test_repeated_readings_of_a_config_are_one_observation() -> None:
    model = toy_prior().fit(POOL, trials((3, 10.0), (3, 10.2), (3, 9.8)))
    assert model.train_targets.shape == (1,)
    once = toy_prior().fit(POOL, trials((3, 10.0)))
    assert model.pool_variance[3] < once.pool_variance[3]


@pytest.mark.parametrize(
    "options",
    [
        {"mean": "none"},
        {"empirical_share": 0.0},
        {"empirical_share": 1.0},
        {"level_sd": 0.0},
        {"calibrate": False},
        {"shrinkage": 0.0},
    ],
    ids=str,
)
def test_every_part_can_be_switched(options: dict[str, object]) -> None:
    surrogate = trained(**options)
    study = replay(make_searcher("meta_gp", SPEC, target().task, prior=surrogate), 6)
    assert len({POOL.index(trial.config) for trial in study.trials}) == 6
    if options == {"mean": "none"}:
        assert not surrogate.prior_mean(POOL).any()


def test_level_moves_all_configs_together() -> None:
    model = toy_prior().fit(POOL, trials((3, 10.0)))
    shifted = model.pool_mean.numpy() - toy_prior().prior_mean(POOL)
    assert shifted == pytest.approx(np.full(len(POOL), shifted[3]), abs=1e-6)


def test_an_unseen_device_is_less_certain() -> None:
    both = sources() + recorded(8, 1, "nvidia_h200_72_sms")
    surrogate = trained(both)
    assert surrogate.prior is not None
    assert surrogate.prior.device_scale >= 1.0
    surrogate.prior = dataclasses.replace(surrogate.prior, device_scale=4.0)
    known = surrogate._pool_prior(POOL).covariance
    unknown = surrogate._pool_prior(recorded(3, 2, "nvidia_a100_sxm4_80gb")[1].pool).covariance
    assert unknown.scale == pytest.approx(4.0 * known.scale)


def test_training_is_reproducible() -> None:
    np.testing.assert_array_equal(trained().prior_mean(POOL), toy_prior().prior_mean(POOL))


def test_training_reports_its_progress() -> None:
    heard: list[tuple[str, float]] = []
    MetaGP(mean_options=FEW_TREES, covariance_options=FEW_STEPS).meta_fit(
        sources(), SPEC, lambda stage, share: heard.append((stage, share))
    )
    assert ("prior mean", 1.0) in heard
    assert heard[-1] == ("covariance", 1.0)


def test_too_few_sources() -> None:
    with pytest.raises(UserError, match="at least 2"):
        MetaGP().meta_fit(sources()[:1], SPEC)


def test_checkpoint_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "toy.safetensors"
    toy_prior().save(path)
    assert path.stat().st_size < 5e6
    loaded = MetaGP.load(path, ToySpec())
    np.testing.assert_array_equal(loaded.prior_mean(POOL), toy_prior().prior_mean(POOL))
    told = trials((3, 10.0), (40, 12.0), (41, 11.0))
    torch.testing.assert_close(
        loaded.fit(POOL, told).pool_variance, toy_prior().fit(POOL, told).pool_variance, rtol=0, atol=0
    )
    np.testing.assert_array_equal(loaded.portfolio, toy_prior().portfolio)
    assert loaded.header["devices"] == ["nvidia_h200"]


def test_checkpoint_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "toy.safetensors"
    toy_prior().save(path)
    good = read_checkpoint(path)

    def refused(message: str, **change: object) -> None:
        other = tmp_path / "other.safetensors"
        write_checkpoint(other, dataclasses.replace(good, header={**good.header, **change}))
        with pytest.raises(UserError, match=message) as caught:
            MetaGP.load(other, SPEC)
        assert str(other) in str(caught.value)
        assert "\n" not in str(caught.value)

    refused("was trained for gemm, not toy", kernel="gemm")
    refused("another version of toy's search space", space="x")
    refused("was trained on other features", feature_names=["a"])
    refused("mean: 'guess' is not one of", mean="guess")


def test_a_prior_keeps_its_kind_of_mean(tmp_path: Path) -> None:
    path = tmp_path / "toy.safetensors"
    toy_prior().save(path)
    assert MetaGP.load(path, SPEC).mean == "trees"
    with pytest.raises(UserError, match="mean: is trees, not mlp"):
        MetaGP.load(path, SPEC, mean="mlp")
    good = read_checkpoint(path)
    old = {key: value for key, value in good.header.items() if key != "mean"}
    write_checkpoint(path, dataclasses.replace(good, header=old))
    np.testing.assert_array_equal(MetaGP.load(path, SPEC).prior_mean(POOL), toy_prior().prior_mean(POOL))
    write_checkpoint(path, dataclasses.replace(good, header=old, texts=()))
    assert not MetaGP.load(path, SPEC).prior_mean(POOL).any()


def test_a_part_of_the_mean_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "toy.safetensors"
    trained(mean="kernel_regression").save(path)
    good = read_checkpoint(path)
    arrays = {name: values for name, values in good.arrays.items() if name != "mean.metric"}
    write_checkpoint(path, dataclasses.replace(good, arrays=arrays))
    with pytest.raises(UserError, match="metric: is missing"):
        MetaGP.load(path, SPEC)


def test_a_feature_that_changed_its_meaning_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "toy.safetensors"
    toy_prior().save(path)

    class Changed(ToySpec):
        def features(self, pool: Pool) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
            return {name: values * 2 for name, values in super().features(pool).items()}

    with pytest.raises(UserError, match="feature log_waves: means something else"):
        MetaGP.load(path, Changed())


def test_features_must_be_finite() -> None:
    class Broken(ToySpec):
        def features(self, pool: Pool) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
            return {"log_zero": np.full(len(pool), -np.inf)}

    spec: KernelSpec = Broken()
    with pytest.raises(ValueError, match="log_zero"):
        MetaGP().meta_fit(sources(), spec)


def test_bad_arguments() -> None:
    for options in ({"empirical_share": 2.0}, {"shrinkage": -1.0}, {"level_sd": -1.0}):
        with pytest.raises(UserError, match=next(iter(options))):
            make_surrogate("meta_gp", **options)
    with pytest.raises(UserError, match="mean: True is not one of kernel_regression, mlp, none, trees"):
        make_surrogate("meta_gp", mean=True)
    with pytest.raises(UserError, match=r"mean_options: none: .*n_trees"):
        MetaGP(mean="none", mean_options={"n_trees": 3})
    with pytest.raises(UserError, match="no prior yet"):
        MetaGP().prior_mean(POOL)
    with pytest.raises(UserError, match="surrogate: 'magic'"):
        make_surrogate("magic")
    with pytest.raises(UserError, match="colour"):
        make_surrogate("cold_gp", colour=1)
