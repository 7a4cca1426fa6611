from __future__ import annotations

from bo_tuner.surrogates.features import design_matrix
from tests.toy_prior import SPEC, target


def test_parameters_are_features_too() -> None:
    names, _ = design_matrix(SPEC, target().pool)
    assert [name for name in names if name.startswith("parameter_")] == [
        f"parameter_{p.name}" for p in SPEC.space.parameters
    ]
