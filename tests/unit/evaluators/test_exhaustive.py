"""The recording policy, on a session that makes times up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from bo_tuner.evaluators import exhaustive
from bo_tuner.evaluators.compiling import CannotRun
from bo_tuner.evaluators.exhaustive import Row, records_of, time_all
from bo_tuner.study import Status


class MadeUp(int):
    """A loaded config: its true time."""

    n_registers = n_spill_bytes = shared_bytes = 0


class MadeUpSession:
    """Config ``{"t": true time}``; readings scatter by 1 %, drift by 10 % after the first pass."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self.n_reads: dict[int, int] = {}
        self.drift = 1.0

    def load(self, config: Any) -> Any:
        if config["t"] == 13:
            raise CannotRun(Status.RUNTIME, "out of shared memory")
        return MadeUp(config["t"])

    def _one(self, t: int) -> float:
        self.n_reads[t] = self.n_reads.get(t, 0) + 1
        return float(t * self.drift * self._rng.normal(1, 0.01))

    def check_and_read(self, loaded: Sequence[int]) -> tuple[list[float], list[float]]:
        errors = {17: math.nan, 19: 0.5}
        return [self._one(t) for t in loaded], [errors.get(t, 2e-3) for t in loaded]

    def read(self, loaded: Sequence[int]) -> list[float]:
        self.drift = 1.1
        return [self._one(t) for t in loaded]

    def baselines(self) -> dict[str, int]:
        return {"library": MadeUp(11)}


def _run(
    times: Sequence[int],
    alone: frozenset[int] = frozenset(),
    dead: frozenset[int] = frozenset(),
    alive: Callable[[list[int]], None] = lambda _: None,
) -> Any:
    session = MadeUpSession()
    rows, baselines = time_all(session, [{"t": t} for t in times], alone, dead, alive, 1e-2)  # type: ignore[arg-type]
    return session, rows, baselines


def test_precision_is_spent_near_the_top() -> None:
    times = [10, 100, 14, 11, 40]
    _, rows, baselines = _run(times)
    assert len(rows[1].readings_us) == len(rows[4].readings_us) == 1
    assert len(rows[2].readings_us) == 1 + exhaustive.NEAR_READINGS[1]
    assert len(rows[3].readings_us) >= exhaustive.CLOSE_READINGS[0]
    assert rows[0].final_readings_us
    assert not rows[3].final_readings_us
    assert len(baselines[0].final_readings_us) == len(rows[0].final_readings_us) >= exhaustive.FINAL_ROUNDS[0]


def test_long_kernels_are_read_again_only_where_they_are_close_to_the_best() -> None:
    _, rows, _ = _run([1_000_000, 1_300_000])
    assert len(rows[1].readings_us) == 1
    assert len(rows[0].readings_us) == exhaustive.CLOSE_READINGS[0]


def test_failures_are_rows_with_a_status() -> None:
    _, rows, _ = _run([10, 13, 17, 19])
    assert [row.status for row in rows] == [Status.CORRECT, Status.RUNTIME, Status.CORRECTNESS, Status.CORRECTNESS]
    assert rows[1].message == "out of shared memory"
    assert not rows[2].readings_us


def test_others_follow_the_finalists_drift() -> None:
    _, rows, _ = _run([10, 100])
    finalist, other = records_of(rows)
    assert other["final_us"] / other["screening_us"] == pytest.approx(finalist["final_us"] / finalist["screening_us"])
    assert other["n_final_readings"] == 0


def test_a_config_that_is_not_read_again_is_no_finalist_by_the_clock_of_an_earlier_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exhaustive, "NEAR_READINGS", (0, 0))
    monkeypatch.setattr(exhaustive, "MAX_CLOSE", 3)
    times = [1000, 1010, 1020, 1150, 1160, 1170, 1180]
    _, rows, _ = _run(times)
    assert [len(row.final_readings_us) > 0 for row in rows] == [True, True, True, False, False, False, False]
    for time, row in zip(times, rows, strict=True):
        assert np.median(row.readings_us) == pytest.approx(1.1 * time, rel=0.04)


def test_the_library_is_no_configs_fault() -> None:
    touched: list[list[int]] = []
    _run([10, 11], alive=touched.append)
    last_but_two, finalists, last = touched[-3:]
    assert last_but_two == last == []
    assert 0 in finalists


def test_records_of_failed_rows_have_no_time() -> None:
    (record,) = records_of([Row(Status.COMPILE, message="no")])
    assert record["final_us"] is record["screening_us"] is None
    assert record["status"] == "compile"


def test_suspects_run_alone_and_the_dead_do_not_run() -> None:
    batches: list[list[int]] = []
    session, rows, _ = _run([10, 11, 12, 14], alone=frozenset({1, 2}), dead=frozenset({2}), alive=batches.append)
    assert batches[:2] == [[1], [0, 3]]
    assert 12 not in session.n_reads
    assert rows[1].status is Status.CORRECT


def test_every_config_failing_leaves_rows_and_baselines() -> None:
    _, rows, baselines = _run([13, 17])
    assert all(row.status is not Status.CORRECT for row in rows)
    assert baselines[0].final_readings_us
