from __future__ import annotations

import dataclasses
import itertools
from typing import ClassVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bo_tuner.space import Parameter, SearchSpace, categorical, integer
from bo_tuner.storage.alignment import align, config_codes, find_codes, pool_codes, positions, space_fingerprint
from tests.toy_kernel import ToySpec
from tests.toy_prior import SPEC, recorded

values = st.one_of(
    st.lists(st.integers(-9, 9), min_size=1, max_size=4, unique=True),
    st.lists(st.text("abc", min_size=1, max_size=2), min_size=1, max_size=4, unique=True),
    st.just([False, True]),
)


@given(st.lists(values, min_size=1, max_size=4))
def test_codes_count_the_product_of_all_values(columns: list[list[int | str]]) -> None:
    parameters = [categorical(f"p{at}", tuple(column)) for at, column in enumerate(columns)]
    product = list(itertools.product(*columns))
    codes = config_codes(
        parameters, {p.name: np.array(c) for p, c in zip(parameters, zip(*product, strict=True), strict=True)}
    )
    assert codes.tolist() == list(range(len(product)))


def test_unknown_value_has_no_code() -> None:
    tile = integer("tile", (1, 2, 4))
    assert positions(tile, np.array([4, 3, 1])).tolist() == [2, -1, 0]
    assert config_codes([tile, integer("n", (1,))], {"tile": np.array([3]), "n": np.array([1])}).tolist() == [-1]


def test_a_config_keeps_its_code_in_another_task() -> None:
    small, large = recorded(8, 1)[0].pool, recorded(8, 1)[3].pool
    assert len(small) != len(large)
    at = find_codes(pool_codes(small), pool_codes(large))
    shared = np.flatnonzero(at >= 0)
    assert len(shared) > 0
    for row in shared[::17]:
        a, b = small.config(int(at[row])), large.config(int(row))
        assert {**a, "split": 1} == {**b, "split": 1} or a == b


def test_codes_of_a_pool_are_distinct() -> None:
    for table in recorded(8, 1):
        codes = pool_codes(table.pool)
        assert len(set(codes.tolist())) == len(table)
        assert codes.min() >= 0


def test_find_in_nothing() -> None:
    assert find_codes(np.array([], dtype=np.int64), np.array([3])).tolist() == [-1]


def test_fingerprint_sees_values_kinds_and_rules() -> None:
    def changed(at: int, **change: object) -> str:
        parameters: list[Parameter] = list(SPEC.space.parameters)
        parameters[at] = dataclasses.replace(parameters[at], **change)  # type: ignore[arg-type]

        class Changed(ToySpec):
            space: ClassVar[SearchSpace] = SearchSpace(tuple(parameters), SPEC.space.rules)

        return space_fingerprint(Changed())

    same = space_fingerprint(ToySpec())
    assert same == space_fingerprint(SPEC)
    others = {
        changed(0, values=(16, 32)),
        changed(1, kind="categorical"),
        changed(5, launch=False),
        changed(4, neutral=8),
    }
    assert same not in others
    assert len(others) == 4


def test_values_of_pools_stand_side_by_side() -> None:
    codes, values = align([np.array([7, 2]), np.array([2, 5])], [np.array([0.7, 0.2]), np.array([1.2, 1.5])])
    assert codes.tolist() == [2, 5, 7]
    np.testing.assert_array_equal(values, [[0.2, np.nan, 0.7], [1.2, 1.5, np.nan]])
