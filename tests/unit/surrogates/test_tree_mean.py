from __future__ import annotations

import sys

import numpy as np
import pytest

from bo_tuner.errors import UserError
from bo_tuner.surrogates.prior_mean import Parts
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


def test_of_a_large_pool_only_slow_rows_are_told_by_the_first_trees_alone() -> None:
    trees, _ = fit_tree_mean(EXAMPLES, SHAPES, OPTIONS)
    pool = SPEC.pool(EXAMPLES.tasks[0])
    rows = np.random.default_rng(0).permuted(np.tile(np.concatenate(EXAMPLES.features), (9, 1)), axis=0)
    blocks = np.array_split(rows, len(rows) // 500)
    full = np.concatenate([trees.predict(pool, block) for block in blocks])
    told = trees.predict(pool, rows)
    same = np.isclose(told, full)
    assert len(rows) > 4 * 1024
    assert 0.25 <= same.mean() < 1.0
    assert same[np.argsort(-full)[:100]].all()
