"""Searchers that fix their whole order of trials in advance, and what they share with those that do not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bo_tuner.searchers.base import SpaceExhausted
from bo_tuner.space import Config, Pool
from bo_tuner.storage.alignment import find_codes, pool_codes
from bo_tuner.study import Trial


class RankingSearcher:
    """Tries the rows of a pool in a given order, whatever the trials say.

    Args:
        pool: the task's configs.
        order: row numbers, each at most once; shape ``[n]``.
    """

    def __init__(self, pool: Pool, order: NDArray[np.int64]) -> None:
        self.pool = pool
        self.order = order
        self.tried = np.zeros(len(pool), dtype=bool)

    def ask(self) -> Config:
        """The first row of the order that was not tried."""
        left = self.order[~self.tried[self.order]]
        if not len(left):
            raise SpaceExhausted
        return self.pool.config(int(left[0]))

    def tell(self, trial: Trial) -> None:
        """Mark the row as tried."""
        self.tried[self.pool.index(trial.config)] = True


def random_order(pool: Pool, seed: int) -> NDArray[np.int64]:
    """All rows in a random order."""
    return np.random.default_rng(seed).permutation(len(pool))


def portfolio_order(pool: Pool, portfolio: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """The portfolio's configs that the pool has, then all other rows in a random order.

    Args:
        pool: the task's configs.
        portfolio: config codes, best first (zero-shot portfolio, Wistuba et al. 2015).
        seed: of the random order.
    """
    at = find_codes(pool_codes(pool), portfolio)
    first = at[at >= 0]
    others = random_order(pool, seed)
    return np.concatenate([first, others[~np.isin(others, first)]])
