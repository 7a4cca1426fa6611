from __future__ import annotations

import sys

import pytest

from bo_tuner.errors import UserError
from bo_tuner.surrogates.prior_mean import Parts
from bo_tuner.surrogates.tree_mean import TreeMean, TreeOptions, fit_tree_mean
from tests.toy_prior import FEW_TREES, examples

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
