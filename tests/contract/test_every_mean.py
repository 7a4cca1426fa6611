"""What every kind of prior mean promises."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bo_tuner.errors import UserError
from bo_tuner.surrogates.features import design_matrix
from bo_tuner.surrogates.means import mean_kind, mean_names, mean_options
from bo_tuner.surrogates.meta_gp import MetaGP
from bo_tuner.surrogates.prior_mean import Floats, PriorMean
from bo_tuner.surrogates.residuals import log_efficiency
from tests.toy_prior import FEW_STEPS, FEW_TREES, SPEC, examples, sources, target

QUICK = {
    "trees": FEW_TREES,
    "mlp": {"n_folds": 3, "n_hidden": 32, "n_steps": 300, "n_batch": 256},
    "kernel_regression": {"n_folds": 3, "n_steps": 30},
    "none": {},
}
EXAMPLES = examples()
SHAPES = tuple(task.shape_key for task in EXAMPLES.tasks)
POOL = target().pool
FEATURES = design_matrix(SPEC, POOL)[1]
pytestmark = pytest.mark.parametrize("name", mean_names())


def fit(name: str, targets: Sequence[Floats], groups: Sequence[str]) -> tuple[PriorMean, list[Floats]]:
    changed = dataclasses.replace(EXAMPLES, targets=targets)
    return mean_kind(name).fit(changed, groups, mean_options(name, QUICK[name]))


@functools.cache
def fitted(name: str) -> tuple[PriorMean, list[Floats]]:
    return fit(name, EXAMPLES.targets, SHAPES)


def test_it_predicts_a_number_for_every_config(name: str) -> None:
    mean, left_out = fitted(name)
    predicted = mean.predict(POOL, FEATURES)
    assert predicted.shape == (len(POOL),)
    for values, codes in zip([predicted, *left_out], [FEATURES, *EXAMPLES.codes], strict=True):
        assert values.dtype == np.float64
        assert len(values) == len(codes)
        assert np.isfinite(values).all()


def test_it_learns_the_order_of_an_unseen_task(name: str) -> None:
    predicted, table = fitted(name)[0].predict(POOL, FEATURES), target()
    if name == "none":
        assert not predicted.any()
    else:
        assert np.corrcoef(predicted[table.correct], log_efficiency(table)[table.correct])[0, 1] > 0.7


def test_fitting_twice_is_the_same(name: str) -> None:
    again, left_out = fit(name, EXAMPLES.targets, SHAPES)
    np.testing.assert_array_equal(again.predict(POOL, FEATURES), fitted(name)[0].predict(POOL, FEATURES))
    for first, second in zip(fitted(name)[1], left_out, strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_left_out_prediction_does_not_know_its_own_task(name: str) -> None:
    """Spoiling one task's times, some of them to failures, must not change the prediction that left it out."""
    spoilt = EXAMPLES.targets[-1][::-1].copy()
    spoilt[: len(spoilt) // 3] = np.nan
    left_out = fit(name, [*EXAMPLES.targets[:-1], spoilt], SHAPES)[1]
    np.testing.assert_array_equal(left_out[-1], fitted(name)[1][-1])
    if name != "none":
        assert any(not np.array_equal(a, b) for a, b in zip(fitted(name)[1][:-1], left_out[:-1], strict=True))


def test_tasks_of_one_group_are_left_out_together(name: str) -> None:
    groups = ["same", "same", *SHAPES[2:]]
    spoilt = [EXAMPLES.targets[0], EXAMPLES.targets[1][::-1].copy(), *EXAMPLES.targets[2:]]
    before, after = (fit(name, targets, groups)[1] for targets in (EXAMPLES.targets, spoilt))
    np.testing.assert_array_equal(before[0], after[0])


def test_one_group_is_told_by_all(name: str) -> None:
    mean, left_out = fit(name, EXAMPLES.targets, ["same"] * len(EXAMPLES))
    assert np.isfinite(mean.predict(POOL, FEATURES)).all()
    assert np.isfinite(left_out[0]).all()


def test_options_that_it_does_not_have(name: str) -> None:
    with pytest.raises(UserError, match=f"mean_options: {name}: .*colour"):
        mean_options(name, {"colour": 1})


def test_a_saved_prior_predicts_the_same(name: str, tmp_path: Path) -> None:
    options = {"mean": name, "mean_options": QUICK[name], "covariance_options": FEW_STEPS}
    prior = MetaGP(**options).meta_fit(sources(), SPEC)  # type: ignore[arg-type]
    prior.save(tmp_path / "toy.safetensors")
    loaded = MetaGP.load(tmp_path / "toy.safetensors", SPEC)
    assert loaded.mean == name
    np.testing.assert_allclose(loaded.prior_mean(POOL), prior.prior_mean(POOL), rtol=0, atol=1e-5)
