from __future__ import annotations

import sys

import numpy as np
import pytest

from bo_tuner.errors import UserError
from bo_tuner.surrogates.prior_mean import Parts, Precision
from bo_tuner.surrogates.tree_mean import TreeMean, TreeOptions, fit_tree_mean
from tests.toy_prior import FEW_TREES, SPEC, examples

EXAMPLES = examples()
SHAPES = [task.shape_key for task in EXAMPLES.tasks]
OPTIONS = TreeOptions(**FEW_TREES)  # type: ignore[arg-type]


def test_checkpoints_hold_rounded_trees_that_predict_the_same() -> None:
    heard: list[float] = []
    trees, _ = fit_tree_mean(EXAMPLES, SHAPES, OPTIONS, lambda _, share: heard.append(share))
    assert heard[-1] == 1.0
    parts = trees.to_checkpoint()
    assert not parts.arrays
    assert not any("split_gain" in text for text in parts.texts)
    assert TreeMean.from_checkpoint(parts).to_checkpoint() == parts


def test_missing_lightgbm_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(UserError, match=r"^lightgbm: is not installed"):
        TreeMean.from_checkpoint(Parts(texts=["a model"]))


@pytest.mark.parametrize(("precision", "n_told", "most"), [("search", 100, 1.0), ("choice", 20, 0.5)])
def test_slow_rows_are_told_by_the_first_trees_alone(precision: Precision, n_told: int, most: float) -> None:
    trees, _ = fit_tree_mean(EXAMPLES, SHAPES, OPTIONS)
    pool = SPEC.pool(EXAMPLES.tasks[0])
    rows = np.random.default_rng(0).permuted(np.concatenate(EXAMPLES.features), axis=0)
    full = trees.predict(pool, rows, "exact")
    np.testing.assert_allclose(full, np.mean([booster.predict(rows) for booster in trees.boosters], axis=0))
    told = trees.predict(pool, rows, precision)
    same = np.isclose(told, full)
    assert len(rows) > 1024
    assert 0 < same.mean() < most
    assert same[np.argsort(-full)[:n_told]].all()
    assert np.argmax(told) == np.argmax(full)
