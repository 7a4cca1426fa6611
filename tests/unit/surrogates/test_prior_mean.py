from __future__ import annotations

import numpy as np

from bo_tuner.surrogates.features import design_matrix
from bo_tuner.surrogates.prior_mean import MeanOptions, TreeMean, fit_tree_mean
from bo_tuner.surrogates.residuals import log_efficiency
from tests.toy_prior import FEW_TREES, SPEC, sources, target

DESIGNS = [design_matrix(SPEC, table.pool) for table in sources()]
NAMES, FEATURES = DESIGNS[0][0], [values for _, values in DESIGNS]
TARGETS = [log_efficiency(table) for table in sources()]
SHAPES = [table.task.shape_key for table in sources()]
OPTIONS = MeanOptions(**FEW_TREES)


def test_trees_learn_the_order_of_an_unseen_task() -> None:
    trees, _ = fit_tree_mean(FEATURES, TARGETS, SHAPES, NAMES, OPTIONS)
    table = target()
    predicted = trees.predict(design_matrix(SPEC, table.pool)[1])
    assert np.corrcoef(predicted[table.correct], log_efficiency(table)[table.correct])[0, 1] > 0.8


def test_a_left_out_prediction_does_not_know_its_own_task() -> None:
    """Spoiling one task's times must not change the prediction that left it out."""
    spoilt = [*TARGETS[:-1], TARGETS[-1][::-1].copy()]
    before = fit_tree_mean(FEATURES, TARGETS, SHAPES, NAMES, OPTIONS)[1]
    after = fit_tree_mean(FEATURES, spoilt, SHAPES, NAMES, OPTIONS)[1]
    np.testing.assert_array_equal(before[-1], after[-1])
    assert any(not np.array_equal(a, b) for a, b in zip(before[:-1], after[:-1], strict=True))


def test_tasks_of_one_group_are_left_out_together() -> None:
    groups = ["same", "same", *SHAPES[2:]]
    spoilt = [TARGETS[0], TARGETS[1][::-1].copy(), *TARGETS[2:]]
    before = fit_tree_mean(FEATURES, TARGETS, groups, NAMES, OPTIONS)[1]
    after = fit_tree_mean(FEATURES, spoilt, groups, NAMES, OPTIONS)[1]
    np.testing.assert_array_equal(before[0], after[0])


def test_text_round_trip_and_progress() -> None:
    heard: list[float] = []
    trees, _ = fit_tree_mean(FEATURES, TARGETS, SHAPES, NAMES, OPTIONS, lambda _, share: heard.append(share))
    assert heard[-1] == 1.0
    again = TreeMean.from_text(trees.to_text())
    np.testing.assert_array_equal(again.predict(FEATURES[0]), trees.predict(FEATURES[0]))


def test_no_trees_are_zero() -> None:
    assert not TreeMean([]).predict(FEATURES[0]).any()


def test_parameters_are_features_too() -> None:
    assert [name for name in NAMES if name.startswith("parameter_")] == [
        f"parameter_{p.name}" for p in SPEC.space.parameters
    ]
