"""The tuning loop: ask, evaluate, tell. The same for a live GPU, a replayed table and a test's toy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from bo_tuner.errors import UserError
from bo_tuner.evaluators.base import Evaluator
from bo_tuner.searchers.base import Searcher, SpaceExhausted
from bo_tuner.study import Study, Trial
from bo_tuner.task import Task

#: Called with every finished trial.
Callback = Callable[[Trial], None]


def tune(
    task: Task,
    searcher: Searcher,
    evaluator: Evaluator,
    budget: int,
    *,
    method: str = "",
    seed: int = 0,
    callbacks: Iterable[Callback] = (),
) -> Study:
    """Spend at most ``budget`` trials; failed ones count. Ends early, without error, when every config was tried.

    Args:
        task: what is tuned; written into the study.
        searcher: proposes.
        evaluator: measures.
        budget: number of trials, at least 1.
        method: name of the searcher for the record.
        seed: its seed, for the record.
        callbacks: called after each trial, in order. ``KeyboardInterrupt`` and their exceptions pass through.

    Raises:
        UserError: the budget is below 1.
    """
    if budget < 1:
        raise UserError(f"budget: {budget} is below 1")
    callbacks = tuple(callbacks)
    trials: list[Trial] = []
    for index in range(budget):
        start = time.perf_counter()
        try:
            config = searcher.ask()
        except SpaceExhausted:
            break
        ask_s = time.perf_counter() - start
        trial = Trial(index, config, evaluator.evaluate(config), ask_s)
        searcher.tell(trial)
        trials.append(trial)
        for callback in callbacks:
            callback(trial)
    return Study(task, method, seed, tuple(trials))
