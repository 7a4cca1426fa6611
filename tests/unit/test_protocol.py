from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from bo_tuner.errors import UserError
from bo_tuner.protocol import random_expectation, reading_ceiling, summarise, tail_statistics, verify
from bo_tuner.storage.tables import TaskTable
from bo_tuner.study import Status
from tests.toy_prior import SPEC, recorded, sources, target, toy_prior


def small_table(n_failed: int) -> TaskTable:
    """Six configs of the toy table, as a table of their own (never asked for its pool)."""
    table, rows = target(), slice(0, 6)
    status = table.status[rows].copy()
    status[:n_failed] = Status.RUNTIME.value
    final = np.where(status == "correct", np.array([9.0, 5.0, 8.0, 6.0, 7.0, 10.0]), np.nan)
    return dataclasses.replace(
        table, status=status, final_us=final, reading_us=final[[1, 0, 3, 2, 4, 5]] if not n_failed else final
    )


@pytest.mark.parametrize("n_failed", [0, 2])
def test_random_expectation_is_the_mean_over_all_orders(n_failed: int) -> None:
    table = small_table(n_failed)
    reading = np.where(table.correct, table.reading_us, np.inf)
    total = np.zeros(8)
    orders = list(itertools.permutations(range(6)))
    for order in orders:
        for k in range(8):
            drawn = list(order[: k + 1])
            total[k] += table.efficiencies[drawn[int(np.argmin(reading[drawn]))]]
    np.testing.assert_allclose(random_expectation(table, 8), total / len(orders), rtol=1e-12)


def test_random_search_agrees_with_its_expectation() -> None:
    table = recorded(3, 2)[0]
    frame = verify(SPEC, [table], "random", n_trials=5, seeds=range(60))
    measured = frame.groupby("trial")["efficiency"].mean().to_numpy()
    np.testing.assert_allclose(measured, random_expectation(table, 5), atol=0.1)


def test_verify_judges_by_final_times() -> None:
    tables = recorded(3, 2)
    frame = verify(SPEC, tables, "prior_only", prior=toy_prior(), n_trials=4)
    assert len(frame) == 3 * 4
    for table in tables:
        last = frame[frame["task"] == table.task.key].iloc[-1]
        assert last["efficiency"] == pytest.approx(table.best_us / last["final_us"])
        assert last["final_us"] != last["time_us"]


def test_verify_keeps_the_incumbent_of_an_exhausted_space() -> None:
    table = target()
    frame = verify(SPEC, [table], "random", n_trials=len(table) + 3)
    assert len(frame) == len(table) + 3
    assert frame["efficiency"].iloc[-1] == frame["efficiency"].iloc[-4] > 0.9


def test_verify_reports_progress_and_needs_tables() -> None:
    heard: list[float] = []
    verify(SPEC, recorded(3, 2), "random", n_trials=1, progress=lambda key, share: heard.append(share))
    assert heard == pytest.approx([1 / 3, 2 / 3, 1])
    with pytest.raises(UserError, match="at least one"):
        verify(SPEC, [], "random")


def test_a_factory_is_a_method_too() -> None:
    from bo_tuner.searchers import make_searcher

    def mine(spec, task, seed, prior):  # type: ignore[no-untyped-def]
        return make_searcher("random", spec, task, seed=seed)

    assert set(verify(SPEC, [target()], mine, n_trials=2)["method"]) == {"mine"}


def test_summary_averages_seeds_first() -> None:
    frame = verify(SPEC, recorded(3, 2), "random", n_trials=5, seeds=(0, 1))
    summary = summarise(frame, "validation")
    assert summary["n_tasks"] == 3
    assert set(summary["efficiency"]) == {"1", "2", "3", "5"}
    per_task = frame[frame["trial"] == 5].groupby("task")["efficiency"].mean()
    assert summary["efficiency"]["5"]["mean"] == pytest.approx(per_task.mean())
    assert summary["efficiency"]["5"]["worst_tenth"] == pytest.approx(per_task.min())


def test_worst_tenth_is_rounded_up() -> None:
    values = np.linspace(0, 1, 21)
    statistics = tail_statistics(values[::-1])
    assert statistics["worst_tenth"] == pytest.approx(values[:3].mean())
    assert statistics["min"] == 0.0
    assert statistics["p10"] == pytest.approx(0.1)


def test_a_prior_is_not_judged_on_its_own_sources() -> None:
    with pytest.raises(UserError, match="was trained on 1 of these 2 tasks"):
        verify(SPEC, [target(), sources()[0]], "meta_gp", prior=toy_prior(), n_trials=2)


def test_the_ceiling_is_what_trying_everything_gives() -> None:
    tables = recorded(3, 2)
    frame = verify(SPEC, tables, "random", n_trials=max(map(len, tables)))
    last = frame[frame["trial"] == frame["trial"].max()]["efficiency"].to_numpy()
    assert reading_ceiling(tables)["mean"] == pytest.approx(last.mean())
