"""What tables hold, on frames whose answers can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from bo_tuner.analysis.fact_tables import SIZES, VALUES, named_once, written
from bo_tuner.analysis.table_facts import slow_shapes, table_sizes, value_worth


def _tasks(**columns: object) -> pd.DataFrame:
    """Four shapes of one file; the last has neither a library nor a duration."""
    nan = float("nan")
    return pd.DataFrame(
        {
            "file": "a.parquet",
            "kernel": "toy",
            "device": "Abacus",
            "split": "train",
            "shape": ["s0", "s1", "s2", "s3"],
            "n_configs": [10, 20, 30, 1000],
            "n_finalists": [1, 2, 3, 4],
            "collect_s": [1.0, 4.0, 5.0, nan],
            "best_us": [10.0, 14.999, 15.0, 5.0],
            "best_config": ["c0", "c1", "c2", "c3"],
            "library": ["l0", "l1", "l2", ""],
            "library_us": [8.5, 14.999 * 4, 15.0 * 0.5, nan],
        }
        | columns
    )


def _rows(tasks: list[str], final_us: list[float], **columns: pd.Categorical) -> pd.DataFrame:
    return pd.DataFrame({"task": tasks, "final_us": final_us, "correct": np.isfinite(final_us), **columns})


def _worth(rows: pd.DataFrame, *parameters: str) -> pd.DataFrame:
    return value_worth(rows, parameters).set_index(["parameter", "value"])


def test_sizes_of_a_table() -> None:
    (row,) = table_sizes(_tasks()).to_dict("records")
    assert [row[name] for name in ("file", "kernel", "device", "split")] == ["a.parquet", "toy", "Abacus", "train"]
    assert (row["n_shapes"], row["n_configs"], row["n_finalists"]) == (4, 1060, 10)
    assert (row["n_configs_min"], row["n_configs_median"], row["n_configs_max"]) == (10, 25.0, 1000)
    assert row["configs_per_s"] == pytest.approx(60 / 10)
    assert row["configs_per_s_short"] == pytest.approx(30 / 5)  # 15 µs is no longer short
    assert row["ratio"] == pytest.approx((0.85 * 4 * 0.5) ** (1 / 3))
    assert row["ratio_min"] == pytest.approx(0.5)
    assert row["at_85_percent"] == row["at_75_percent"] == pytest.approx(200 / 3)


def test_a_table_without_library_and_durations_has_dashes() -> None:
    sizes = table_sizes(_tasks(library_us=math.nan, collect_s=math.nan))
    assert sizes[["configs_per_s", "ratio", "ratio_min"]].isna().all(axis=None)
    assert written(sizes, SIZES)["library / best (lowest)"].tolist() == ["– (–)"]


def test_files_keep_their_order_and_their_own_shapes() -> None:
    tasks = pd.concat([_tasks(file="z.parquet"), _tasks(file="a.parquet", n_configs=7)], ignore_index=True)
    assert table_sizes(tasks)["file"].tolist() == ["z.parquet", "a.parquet"]
    assert table_sizes(tasks)["n_configs"].tolist() == [1060, 28]
    assert slow_shapes(tasks)["file"].tolist() == ["z.parquet", "a.parquet"]


def test_slow_shapes_are_those_under_the_mark_lowest_first() -> None:
    slow = slow_shapes(_tasks(library_us=[8.4, 1.4999, 15.0, 4.25]))
    assert slow["shape"].tolist() == ["s1", "s0"]  # s3 is at .85 exactly
    assert slow["best_config"].tolist() == ["c1", "c0"]
    assert slow["ratio"].tolist() == pytest.approx([0.1, 0.84])
    assert slow_shapes(_tasks(library_us=100.0)).empty


def test_worth_of_values_in_the_parameters_own_order() -> None:
    tile = pd.Categorical([64, 32, 128, 64, 32, 128], categories=[32, 128, 64])
    worth = _worth(_rows(list("aaabbb"), [10.0, 10.1, 20.0, 40.0, 80.0, 100.0], tile=tile), "tile")
    assert worth.index.tolist() == [("tile", 32), ("tile", 128), ("tile", 64)]
    assert worth["best_percent"].tolist() == [0, 0, 100]
    assert worth["near_percent"].tolist() == [50, 0, 100]
    assert worth["rows_percent"].tolist() == pytest.approx([100 / 3] * 3)
    assert worth["only_percent"].tolist() == [0, 0, 0]
    # Without 64, shape a falls from 10 to 10.1 and b from 40 to 80; a value that no best config has costs nothing.
    assert worth["cost_percent"].tolist() == pytest.approx([0, 0, 50 * (1 - 10 / 10.1) + 25])
    assert worth["worst_percent"].tolist() == pytest.approx([0, 0, 50])


def test_a_parameter_without_effect_counts_for_none_of_its_values() -> None:
    split = pd.Categorical([2, None, 4, None], categories=[2, 4])
    worth = _worth(_rows(list("aabb"), [10.0, 20.0, 30.0, 15.0], split=split), "split")
    assert worth["best_percent"].tolist() == [50, 0]  # the best config of b has no split
    assert worth["rows_percent"].tolist() == [25, 25]
    assert worth["cost_percent"].tolist() == [25, 0]
    assert worth["worst_percent"].tolist() == [50, 0]


def test_a_value_that_nothing_uses_is_listed_with_zeros() -> None:
    loader = pd.Categorical(["tma", "ptr"], categories=["ptr", "tma", "bulk"])
    worth = _worth(_rows(["a", "a"], [1.0, 2.0], loader=loader), "loader")
    assert (worth.loc[("loader", "bulk")] == 0).all()


def test_of_equally_fast_configs_the_first_is_best_and_neither_costs() -> None:
    fast = pd.Categorical([True, False], categories=[False, True])
    worth = _worth(_rows(["a", "a"], [10.0, 10.0], fast=fast), "fast")
    assert worth["best_percent"].tolist() == [0, 100]
    assert worth["near_percent"].tolist() == [100, 100]
    assert worth["cost_percent"].tolist() == [0, 0]


def test_two_percent_is_near() -> None:
    tile = pd.Categorical([1, 2, 3], categories=[1, 2, 3])
    worth = _worth(_rows(list("aaa"), [100.0, 102.0, 102.1], tile=tile), "tile")
    assert worth["near_percent"].tolist() == [100, 100, 0]


def test_failed_configs_are_rows_but_never_fast() -> None:
    tile = pd.Categorical([16, 16, 32, 32], categories=[16, 32])
    worth = _worth(_rows(list("aabb"), [math.nan, 10.0, math.nan, 20.0], tile=tile), "tile")
    assert worth["rows_percent"].tolist() == [50, 50]
    assert worth["best_percent"].tolist() == [50, 50]


def test_shapes_without_another_config_are_counted_apart_from_the_cost() -> None:
    pack = pd.Categorical([1, 1, 2, 1, 2], categories=[1, 2])
    rows = _rows(list("abbcc"), [10.0, 20.0, 25.0, 30.0, math.nan], pack=pack)
    worth = _worth(rows, "pack")
    assert worth["only_percent"].tolist() == pytest.approx([200 / 3, 0])
    assert worth["cost_percent"].tolist() == pytest.approx([20, 0])
    alone = _worth(rows[rows["task"] == "a"], "pack")
    assert written(alone.reset_index(), VALUES)["cost %"].tolist() == ["–", "0.00"]


def test_the_order_of_rows_does_not_matter_where_nothing_ties() -> None:
    rng = np.random.default_rng(0)
    final_us = (10 * rng.uniform(1, 2, 600)).tolist()
    codes = {name: pd.Categorical.from_codes(rng.integers(-1, 3, 600), categories=[1, 2, 3]) for name in ("x", "y")}
    rows = _rows(rng.choice(list("abcdef"), 600).tolist(), final_us, **codes)
    shuffled = rows.sample(frac=1, random_state=1)
    pd.testing.assert_frame_equal(value_worth(rows, ["x", "y"]), value_worth(shuffled, ["x", "y"]))


def test_a_parameter_is_named_once() -> None:
    values = pd.DataFrame({"parameter": ["x", "x", "y", "y"], "value": [1, 2, 1, 2]})
    assert named_once(values)["parameter"].tolist() == ["x", "", "y", ""]
