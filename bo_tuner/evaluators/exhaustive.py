"""Time every config of a task, spending precision where it matters.

1. Each config: poisoned output, check against the reference, one reading.
2. Those within ``NEAR`` of the best: up to two more readings, if they are short.
3. Those within ``CLOSE``: at least six new ones, together.
4. The finalists and the library baselines. The table's best comes from these rounds, never from single readings.

Steps 2 to 4 interleave their configs round by round, each round in another order; from steps 3 and 4 the drift that
neighbours in time share is taken out (see ``drift.py``). Between steps 1 and 3 the clock may fall by some percent: the
readings of configs that step 3 leaves out are brought to its level before finalists are chosen. Readings of short
kernels scatter more and cost less, so steps 3 and 4 take more of them, up to a fixed time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bo_tuner.evaluators.compiling import CannotRun
from bo_tuner.evaluators.drift import read_rounds
from bo_tuner.space import Config
from bo_tuner.study import Status

if TYPE_CHECKING:
    from bo_tuner.evaluators.session import GpuSession, Loaded

NEAR, CLOSE, FINAL = 1.5, 1.2, 1.08
MAX_CLOSE, MAX_FINALISTS = 240, 60
#: Fewest and most further readings a config, and the seconds that a step may take beyond the fewest.
NEAR_READINGS, CLOSE_READINGS, FINAL_ROUNDS, STEP_S = (0, 2), (6, 12), (9, 60), 0.3
#: What a reading takes besides the kernel: queueing, the cache flush.
_OVERHEAD_US = 90.0
#: Configs checked between two signs of life.
BATCH = 160

POLICY = {
    "screening": "1 reading; {} to {} more within {} of the best; {} to {} new within {}; median".format(
        *NEAR_READINGS, NEAR, *CLOSE_READINGS, CLOSE
    ),
    "final": "at most {} within {}, {} to {} rounds interleaved with the library; median".format(
        MAX_FINALISTS, FINAL, *FINAL_ROUNDS
    ),
    "drift": "median polish over 21 neighbours in time, in the readings close to the best and the final ones; "
    "other readings scaled to the level of those close to the best",
    "others": "final_us of the rest is the screening median times the finalists' median ratio of final to screening",
}


@dataclass
class Row:
    """What was recorded of one config; the columns of a table."""

    status: Status
    readings_us: list[float] = field(default_factory=list)
    final_readings_us: list[float] = field(default_factory=list)
    rel_error: float = math.nan
    compile_s: float = 0.0
    n_registers: int = 0
    n_spill_bytes: int = 0
    shared_bytes: int = 0
    message: str = ""


@dataclass(frozen=True)
class Baseline:
    """A library call timed in the same rounds as the finalists."""

    name: str
    final_readings_us: list[float]


def time_all(
    session: GpuSession,
    configs: Sequence[Config],
    alone: frozenset[int],
    dead: frozenset[int],
    alive: Callable[[list[int]], None],
    tolerance: float,
) -> tuple[list[Row], list[Baseline]]:
    """Rows in the order of the configs, and the baselines.

    Args:
        session: an open session.
        configs: what to time.
        alone: positions to check one at a time, since a batch with them killed an earlier process.
        dead: positions that killed a process by themselves; they are left out.
        alive: called before each step with the positions it touches.
        tolerance: largest relative error of a correct result.
    """
    rows = [Row(Status.RUNTIME) for _ in configs]
    loaded: dict[int, Loaded] = {}
    for batch in _batches(len(configs), alone, dead):
        alive(batch)
        some_rows, some_loaded = first_rows(session, [configs[position] for position in batch], tolerance)
        loaded.update({batch[place]: one for place, one in some_loaded.items()})
        for position, row in zip(batch, some_rows, strict=True):
            rows[position] = row

    def read_again(factor: float, most: int, fewest: int, at_most: int) -> dict[int, list[float]]:
        chosen = _within(rows, factor)[:most]
        alive(chosen)
        n_rounds = _affordable(rows, chosen, fewest, at_most)
        readings = read_rounds(session.read, [loaded[position] for position in chosen], n_rounds)
        return dict(zip(chosen, readings, strict=True))

    for position, readings in read_again(NEAR, len(rows), *NEAR_READINGS).items():
        rows[position].readings_us += readings
    _replace(rows, read_again(CLOSE, MAX_CLOSE, *CLOSE_READINGS))
    finalists = _within(rows, FINAL)[:MAX_FINALISTS]
    alive([])  # what the library does is no config's fault
    library = session.baselines()
    alive(finalists)
    baselines = _final_rounds(session, rows, loaded, finalists, library)
    alive([])
    return rows, baselines


def _replace(rows: list[Row], taken_together: dict[int, list[float]]) -> None:
    """Put readings that were taken together in the place of earlier ones, and bring all others to their level."""
    if not taken_together:
        return
    middle = statistics.median
    level = middle(middle(new) / middle(rows[position].readings_us) for position, new in taken_together.items())
    for position, row in enumerate(rows):
        row.readings_us = taken_together.get(position) or [level * reading for reading in row.readings_us]


def first_rows(session: GpuSession, configs: Sequence[Config], tolerance: float) -> tuple[list[Row], dict[int, Loaded]]:
    """Load, check and read each config once. Returns rows, and by position what could be loaded."""
    rows = [Row(Status.RUNTIME) for _ in configs]
    loaded: dict[int, Loaded] = {}
    for position, config in enumerate(configs):
        try:
            loaded[position] = session.load(config)
        except CannotRun as refusal:
            rows[position] = Row(refusal.status, message=str(refusal))
    readings, errors = session.check_and_read(list(loaded.values()))
    for (position, one), reading, error in zip(loaded.items(), readings, errors, strict=True):
        rows[position] = _first_row(one, reading, error, tolerance)
    return rows, loaded


def _first_row(loaded: Loaded, reading: float, error: float, tolerance: float) -> Row:
    facts = (error, 0.0, loaded.n_registers, loaded.n_spill_bytes, loaded.shared_bytes)
    if error <= tolerance:  # false for NaN, which an unwritten element leaves behind
        return Row(Status.CORRECT, [reading], [], *facts)
    return Row(Status.CORRECTNESS, [], [], *facts, message=f"relative error {error:.2g} is over {tolerance:.2g}")


def _final_rounds(
    session: GpuSession,
    rows: list[Row],
    loaded: dict[int, Loaded],
    finalists: list[int],
    baselines: Mapping[str, Loaded],
) -> list[Baseline]:
    entrants = [loaded[position] for position in finalists] + list(baselines.values())
    readings = read_rounds(session.read, entrants, _affordable(rows, finalists, *FINAL_ROUNDS))
    for position, of_finalist in zip(finalists, readings, strict=False):
        rows[position].final_readings_us = of_finalist
    return [Baseline(name, of_library) for name, of_library in zip(baselines, readings[len(finalists) :], strict=True)]


def _affordable(rows: list[Row], chosen: list[int], fewest: int, most: int) -> int:
    """Readings of each chosen config that fit ``STEP_S``, within the bounds."""
    round_us = sum(statistics.median(rows[position].readings_us) + _OVERHEAD_US for position in chosen)
    return min(most, max(fewest, int(STEP_S * 1e6 / max(round_us, 1.0))))


def _batches(n: int, alone: frozenset[int], dead: frozenset[int]) -> Iterator[list[int]]:
    yield from ([position] for position in sorted(alone - dead))
    rest = [position for position in range(n) if position not in alone | dead]
    yield from (rest[first : first + BATCH] for first in range(0, len(rest), BATCH))


def _within(rows: list[Row], factor: float) -> list[int]:
    """Positions of correct rows at most ``factor`` times the best median, fastest first."""
    medians = {i: statistics.median(row.readings_us) for i, row in enumerate(rows) if row.status is Status.CORRECT}
    if not medians:
        return []
    limit = factor * min(medians.values())
    return sorted((i for i, median in medians.items() if median <= limit), key=medians.__getitem__)


def records_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What a table keeps of each row; see ``storage/schema.py`` for the columns."""
    drift = _drift(rows)
    return [_record(row, drift) for row in rows]


def _record(row: Row, drift: float) -> dict[str, Any]:
    screening = statistics.median(row.readings_us) if row.readings_us else None
    final = row.final_readings_us
    q25, q50, q75 = np.percentile(final, (25, 50, 75)).tolist() if final else (None, None, None)
    return {
        "status": row.status.value,
        "screening_us": screening,
        "n_readings": len(row.readings_us),
        "final_us": screening * drift if q50 is None and screening is not None else q50,
        "q25_us": q25,
        "q75_us": q75,
        "n_final_readings": len(final),
        "rel_error": None if math.isnan(row.rel_error) else row.rel_error,
        "compile_s": None if math.isnan(row.compile_s) else row.compile_s,
        "n_registers": row.n_registers,
        "n_spill_bytes": row.n_spill_bytes,
        "shared_bytes": row.shared_bytes,
        "message": row.message,
    }


def _drift(rows: Sequence[Row]) -> float:
    """Median ratio of final to screening time over the finalists."""
    ratios = [
        statistics.median(row.final_readings_us) / statistics.median(row.readings_us)
        for row in rows
        if row.final_readings_us
    ]
    return statistics.median(ratios) if ratios else 1.0
