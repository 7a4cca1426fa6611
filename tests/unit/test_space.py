"""Spaces: enumeration, canonical form, encodings. Properties hold for every shape, not for a chosen one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.space import (
    Columns,
    Parameter,
    Pool,
    Rule,
    SearchSpace,
    categorical,
    config_key,
    integer,
    logarithmic,
    power_of_two,
)
from bo_tuner.task import Task, device_named
from tests.toy_kernel import ToySpec

SPEC = ToySpec()
DEVICE = device_named("nvidia_h200")
shapes = st.fixed_dictionaries({"rows": st.integers(1, 1 << 17), "cols": st.integers(1, 1 << 14)})


def pool_of(shape: dict[str, int]) -> Pool:
    return SPEC.pool(SPEC.task(shape, DEVICE))


@given(shapes)
def test_every_config_is_valid_canonical_and_unique(shape: dict[str, int]) -> None:
    pool = pool_of(shape)
    assert len(set(pool.keys)) == len(pool) > 0
    for row in range(0, len(pool), 29):
        config = pool.config(row)
        assert SPEC.space.why_invalid(config, pool.task) is None
        assert pool.index(config) == row


@given(shapes)
@settings(max_examples=20)
def test_the_pool_is_every_combination_that_no_rule_refuses_in_order(shape: dict[str, int]) -> None:
    pool = pool_of(shape)
    choices = [(*p.values, *(() if p.active is None else (None,))) for p in pool.parameters]
    combinations = (
        dict(zip((p.name for p in pool.parameters), chosen, strict=True)) for chosen in itertools.product(*choices)
    )
    configs = ({name: value for name, value in chosen.items() if value is not None} for chosen in combinations)
    assert pool.keys == [config_key(config) for config in configs if SPEC.space.why_invalid(config, pool.task) is None]


@given(shapes)
def test_a_rule_counts_combinations_of_the_parameters_that_it_reads(shape: dict[str, int]) -> None:
    assert pool_of(shape).rejected == {"tile × stages over 512": 1}  # 256 × 3, before anything else multiplies it


def test_what_a_rule_refused_the_next_does_not_count() -> None:
    rules = (
        Rule("even", lambda c, _: c["a"] % 2 == 0),
        Rule("over 3", lambda c, _: c["a"] > 3),
        Rule("both", _both_small),
    )
    space = SearchSpace((integer("a", (1, 2, 3, 4, 5)), integer("b", (1, 2))), rules)
    pool = space.pool(SPEC.task({"rows": 1, "cols": 1}, DEVICE))
    assert pool.rejected == {"even": 2, "over 3": 1, "both": 1}
    assert pool.keys == ["a=1,b=2", "a=3,b=1", "a=3,b=2"]


def _both_small(columns: Columns, _: Task) -> NDArray[np.bool_]:
    return (columns["a"] == 1) & (columns["b"] == 1)


@given(shapes)
def test_encoding_is_finite_and_tells_configs_apart(shape: dict[str, int]) -> None:
    pool = pool_of(shape)
    assert pool.encoded.shape == (len(pool), len(pool.parameters))
    assert np.isfinite(pool.encoded).all()
    assert len(np.unique(pool.encoded, axis=0)) == len(pool)


@given(st.integers(0, 20), st.integers(0, 8))
def test_power_of_two_is_encoded_as_its_exponent(low: int, span: int) -> None:
    parameter = power_of_two("x", 1 << low, 1 << (low + span))
    assert parameter.encode(np.array(parameter.values)).tolist() == list(range(low, low + span + 1))


def test_logarithmic_is_encoded_as_its_logarithm() -> None:
    parameter = logarithmic("x", (96, 128, 192, 288))
    assert parameter.values == (96, 128, 192, 288)
    codes = parameter.encode(np.array([192, 96, 128]))
    assert codes[0] - codes[1] == pytest.approx(1)
    assert codes[2] == 7


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, unique=True))
def test_categorical_codes_follow_the_order_of_values(values: list[str]) -> None:
    parameter = categorical("x", values)
    assert parameter.encode(np.array(values, dtype=object)).tolist() == list(range(len(values)))


def test_integer_is_encoded_as_itself() -> None:
    assert integer("x", (2, 3, 5)).encode(np.array([5, 2])).tolist() == [5, 2]


def test_conditional_parameter_without_neutral_is_refused() -> None:
    with pytest.raises(ValueError, match="split: a conditional parameter"):
        Parameter("split", (2, 4), "logarithmic", active=lambda columns, task: np.array([True]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tile": 48}, "tile: 48 is not one of"),
        ({"tile": None}, "tile: is missing"),
        ({"split": 2}, "split: has no effect here"),
        ({"tile": 256, "stages": 3}, "tile × stages over 512"),
        ({"colour": 1}, "colour: is no parameter"),
    ],
    ids=["value", "missing", "inactive", "rule", "unknown"],
)
def test_why_invalid_names_the_reason(change: dict[str, int | None], reason: str) -> None:
    task = SPEC.task({"rows": 1 << 17, "cols": 64}, DEVICE)
    config = {"tile": 64, "stages": 1, "loader": "ptr", "fast": False, "group": 1} | change
    told = SPEC.space.why_invalid({name: value for name, value in config.items() if value is not None}, task)
    assert told is not None
    assert told.startswith(reason)


def test_unknown_config_is_a_user_error() -> None:
    with pytest.raises(UserError, match="is not a valid config"):
        pool_of({"rows": 64, "cols": 64}).index({"tile": 7})


def test_config_key_ignores_the_order_of_insertion() -> None:
    assert config_key({"b": 1, "a": True}) == config_key({"a": True, "b": 1}) == "a=True,b=1"
