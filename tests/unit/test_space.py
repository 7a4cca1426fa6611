"""Spaces: enumeration, canonical form, encodings. Properties hold for every shape, not for a chosen one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bo_tuner.errors import UserError
from bo_tuner.space import Parameter, Pool, categorical, config_key, integer, power_of_two
from bo_tuner.task import device_named
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
def test_nothing_is_lost_between_valid_and_rejected(shape: dict[str, int]) -> None:
    pool = pool_of(shape)
    unconditional = 5 * 3 * 2 * 2 * 3
    splits = np.ceil(shape["rows"] / np.array([16, 32, 64, 128, 256])) < DEVICE.n_sms
    assert len(pool) + sum(pool.rejected.values()) == unconditional // 5 * int(np.where(splits, 2, 1).sum())


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


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, unique=True))
def test_categorical_codes_follow_the_order_of_values(values: list[str]) -> None:
    parameter = categorical("x", values)
    assert parameter.encode(np.array(values, dtype=object)).tolist() == list(range(len(values)))


def test_integer_is_encoded_as_itself() -> None:
    assert integer("x", (2, 3, 5)).encode(np.array([5, 2])).tolist() == [5, 2]


def test_conditional_parameter_without_neutral_is_refused() -> None:
    with pytest.raises(ValueError, match="split: a conditional parameter"):
        Parameter("split", (2, 4), "power_of_two", active=lambda columns, task: np.array([True]))


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
