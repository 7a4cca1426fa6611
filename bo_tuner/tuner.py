"""The tuning loop: ask, evaluate, tell. The same for a live GPU, a replayed table and a test's toy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from bo_tuner.errors import UserError
from bo_tuner.evaluators.base import Evaluator
from bo_tuner.searchers.base import Foresighted, Searcher, SelfAssessing, SpaceExhausted
from bo_tuner.space import Config
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
    min_gain: float = 0.0,
    confirm: int = 0,
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
        min_gain: end early when the next trial is expected to save less than this share of the best time, for example
            0.002; 0 spends the whole budget.
        confirm: the last so many trials of the budget, or the next ones where the search ends early, time the best
            configs again, each once; the study's best is then chosen by all readings of a config.

    Raises:
        UserError: the budget is below 1, ``min_gain`` is not between 0 and 1, the searcher cannot tell its gain, or
            ``confirm`` leaves no trial for the search.
    """
    if budget < 1:
        raise UserError(f"budget: {budget} is below 1")
    if not 0 <= min_gain < 1:
        raise UserError(f"min_gain: {min_gain} is not at least 0 and below 1")
    if min_gain and not isinstance(searcher, Foresighted):
        raise UserError(f"min_gain: {method or type(searcher).__name__} cannot tell what another trial would gain")
    if not 0 <= confirm < budget:
        raise UserError(f"confirm: {confirm} is not at least 0 and below the budget of {budget} trials")
    callbacks = tuple(callbacks)
    trials: list[Trial] = []

    def spend(config: Config, ask_s: float) -> None:
        trial = Trial(len(trials), config, evaluator.evaluate(config), ask_s)
        searcher.tell(trial)
        trials.append(trial)
        for callback in callbacks:
            callback(trial)

    promises_little = False
    for _ in range(budget - confirm):
        start = time.perf_counter()
        if min_gain and isinstance(searcher, Foresighted) and searcher.expected_gain() < min_gain:
            promises_little = True
            break
        try:
            config = searcher.ask()
        except SpaceExhausted:
            break
        spend(config, time.perf_counter() - start)
    for best in Study(task, method, seed, tuple(trials)).ranked()[:confirm]:
        spend(best.config, 0.0)
    return Study(task, method, seed, tuple(trials), n_saved=budget - len(trials) if promises_little else 0)


def assess(study: Study, searcher: Searcher) -> Study:
    """The study with how far its best config is thought to be from the best of all.

    Costs some 20 ms, so a run does it once, at its end, and only for who wants to know.

    Args:
        study: a finished or interrupted run.
        searcher: the one that made it; one that cannot tell leaves the study as it is.
    """
    if study.best is None or not isinstance(searcher, SelfAssessing):
        return study
    return replace(study, distance=searcher.expected_distance(study.best.config))
