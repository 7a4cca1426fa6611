"""Taking the drift of clocks and heat out of interleaved readings.

A large GEMM runs at a higher clock after a pause and is throttled some milliseconds later: on an H200 the same config
read 5 to 10 % more at the end of a batch of 128 readings than at its start. The order of the readings is known and
random, so what neighbours in time have in common can be told from what a config's readings have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

#: Neighbours in time that share a drift, and rounds of fitting configs and drift in turn.
_WINDOW, _N_ROUNDS = 21, 8

T = TypeVar("T")


def read_rounds(read: Callable[[list[T]], list[float]], entrants: Sequence[T], n_rounds: int) -> list[list[float]]:
    """Read entrants interleaved and take the drift out.

    Args:
        read: one reading in µs of each entrant handed in, in the order given.
        entrants: what to read.
        n_rounds: readings of each.

    Returns:
        The readings of each entrant, in the order of the entrants.
    """
    order = interleaved(len(entrants), n_rounds)
    found: list[list[float]] = [[] for _ in entrants]
    for place, reading in zip(order, without_drift(order, read([entrants[i] for i in order])), strict=True):
        found[place].append(reading)
    return found


def interleaved(n: int, n_rounds: int, seed: int = 0) -> list[int]:
    """Positions 0 to ``n - 1``, each once a round, every round in another order."""
    rng = np.random.default_rng(seed)
    return [int(position) for _ in range(n_rounds) for position in rng.permutation(n)]


def without_drift(order: Sequence[int], readings_us: Sequence[float]) -> list[float]:
    """The readings as they would have been at the median drift of the run.

    log reading = config + drift(time) + noise; both are fitted in turn as medians (median polish, Tukey 1977), the
    drift over a window of neighbours. Needs some rounds to tell the two apart; with fewer than four the readings come
    back as they are.

    Args:
        order: which config each reading is of, as :func:`interleaved` makes it.
        readings_us: the readings, in the order in which they were taken.
    """
    if len(order) < 4 * len(set(order)):
        return list(readings_us)
    frame = pd.DataFrame({"config": order, "log": np.log(readings_us)})
    level = frame.groupby("config")["log"].transform("median")
    drift = frame["log"] * 0.0
    for _ in range(_N_ROUNDS):
        drift = (frame["log"] - level).rolling(_WINDOW, center=True, min_periods=1).median()
        level = (frame["log"] - drift).groupby(frame["config"]).transform("median")
    corrected: list[float] = np.exp(frame["log"] - drift + drift.median()).tolist()
    return corrected
