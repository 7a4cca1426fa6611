from __future__ import annotations

import dataclasses

import numpy as np
import torch

from bo_tuner.surrogates.mlp_mean import MLPOptions, fit_mlp_mean
from tests.toy_prior import examples, target

FEW = MLPOptions(n_folds=2, n_hidden=8, n_steps=20, n_batch=64)
EXAMPLES = examples()
SHAPES = [task.shape_key for task in EXAMPLES.tasks]


def test_a_feature_that_all_sources_share_may_differ_on_a_new_device() -> None:
    same = [np.column_stack([x, np.full(len(x), 7.0)]) for x in EXAMPLES.features]
    mean, _ = fit_mlp_mean(dataclasses.replace(EXAMPLES, features=same, names=[*EXAMPLES.names, "same"]), SHAPES, FEW)
    near, far = (np.column_stack([EXAMPLES.features[0], np.full(len(same[0]), 7.0 + by)]) for by in (0.0, 1e9))
    assert np.abs(mean.predict(target().pool, far) - mean.predict(target().pool, near)).max() < 10


def test_training_leaves_the_seed_of_torch_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit_mlp_mean(EXAMPLES, SHAPES, FEW)
    torch.testing.assert_close(torch.rand(3), expected)
