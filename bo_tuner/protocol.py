"""The verify protocol: replay a method on recorded tasks and judge its choices by the final times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.evaluators.base import Evaluator
from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.searchers import Searcher, SearcherFactory, make_searcher
from bo_tuner.searchers.base import Predicting
from bo_tuner.space import Config
from bo_tuner.storage.tables import TaskTable
from bo_tuner.study import Measurement
from bo_tuner.tuner import assess, tune

if TYPE_CHECKING:
    from bo_tuner.surrogates.meta_gp import MetaGP

#: Numbers of trials that a summary reports.
REPORTED_TRIALS = (1, 2, 3, 5, 10, 20)


def verify(
    spec: KernelSpec,
    tables: Sequence[TaskTable],
    method: str | SearcherFactory,
    *,
    prior: MetaGP | None = None,
    n_trials: int = 20,
    seeds: Sequence[int] = (0,),
    progress: Callable[[str, float], None] | None = None,
) -> pd.DataFrame:
    """Tune every recorded task and judge the incumbent after each trial.

    The incumbent is chosen by the readings that the run saw; its efficiency is the table's best *final* time over its
    final time. A run that ends early (every config tried) keeps its last incumbent.

    Args:
        spec: the kernel.
        tables: recorded tasks, none of which the prior has seen.
        method: name of a search method, or a factory (spec, task, seed, prior) → searcher.
        prior: trained surrogate, for the methods that need one.
        n_trials: trials a run.
        seeds: one run a task and seed.
        progress: called with the task's key and the share done.

    Returns:
        One row a (task, seed, trial): kernel, device, task, method, seed, trial, efficiency, time_us (the incumbent's
        reading), final_us, tried (efficiency of the trial's own config, 0 if it failed), z (its log reading less what
        was predicted, in predicted standard deviations), distance and distance_bound (after the last trial, expected
        distance to the best and its 95 % bound, as shares of time), status, compile_s, ask_s. NaN where a method does
        not say.

    Raises:
        UserError: there is no such method, it lacks a prior, there is nothing to replay, or the prior was trained on
            one of the tasks.
    """
    if not tables or not seeds:
        raise UserError("verify: at least one table and one seed are needed")
    seen = [table.task.key for table in tables if prior is not None and prior.has_seen(table.task)]
    if seen:
        raise UserError(f"prior: was trained on {len(seen)} of these {len(tables)} tasks, {seen[0]} among them")
    name = method if isinstance(method, str) else getattr(method, "__name__", "custom")
    rows: list[dict[str, Any]] = []
    for at, table in enumerate(tables):
        for seed in seeds:
            if isinstance(method, str):
                searcher = make_searcher(method, spec, table.task, seed=seed, prior=prior)
            else:
                searcher = method(spec, table.task, seed, prior)
            witness = _Witness(ReplayEvaluator(table), searcher)
            study = assess(tune(table.task, searcher, witness, n_trials, method=name, seed=seed), searcher)
            common: dict[str, Any] = {"kernel": spec.name, "device": table.task.device.key, "task": table.task.key}
            common |= {"method": name, "seed": seed}
            incumbents = list(study.incumbents())
            for trial in range(n_trials):
                best = incumbents[min(trial, len(incumbents) - 1)]
                chosen = None if best is None else table.pool.index(best.config)
                tried = study.trials[trial] if trial < len(study.trials) else None
                told = study.distance if trial == n_trials - 1 else None
                rows.append(
                    common
                    | {
                        "trial": trial + 1,
                        "efficiency": 0.0 if chosen is None else table.efficiency(chosen),
                        "time_us": math.inf if best is None else best.measurement.time_us,
                        "final_us": math.inf if chosen is None else float(table.final_us[chosen]),
                        "tried": 0.0 if tried is None else table.efficiency(table.pool.index(tried.config)),
                        "z": math.nan if tried is None else witness.z[trial],
                        "distance": math.nan if told is None else told.mean,
                        "distance_bound": math.nan if told is None else told.high,
                        "status": "" if tried is None else tried.measurement.status.value,
                        "compile_s": 0.0 if tried is None else tried.measurement.compile_s,
                        "ask_s": 0.0 if tried is None else tried.ask_s,
                    }
                )
        if progress is not None:
            progress(table.task.key, (at + 1) / len(tables))
    return pd.DataFrame(rows)


class _Witness:
    """An evaluator that asks the searcher for its prediction before it lets it know the reading.

    ``z`` has one number a trial: log reading less prediction, in predicted standard deviations; NaN without either.
    """

    def __init__(self, evaluator: Evaluator, searcher: Searcher) -> None:
        self._evaluator, self._searcher = evaluator, searcher
        self.z: list[float] = []

    def evaluate(self, config: Config) -> Measurement:
        predicted = self._searcher.predict(config) if isinstance(self._searcher, Predicting) else None
        measured = self._evaluator.evaluate(config)
        mean, sd = predicted or (math.nan, math.nan)
        self.z.append((math.log(measured.time_us) - mean) / sd if measured.ok else math.nan)
        return measured


def summarise(frame: pd.DataFrame, split: str | Path = "") -> dict[str, Any]:
    """The numbers of one method on one kernel and device.

    Efficiencies are averaged over the seeds of a task first. ``worst_tenth`` is the mean over the lowest tenth of the
    tasks (rounded up), ``p10`` the 10th percentile, ``min`` the worst task.
    """
    per_task = frame.groupby(["task", "trial"])["efficiency"].mean().unstack("trial")
    return {
        "kernel": frame["kernel"].iloc[0],
        "device": frame["device"].iloc[0],
        "split": str(split),
        "n_tasks": len(per_task),
        "method": frame["method"].iloc[0],
        "efficiency": {
            str(n): tail_statistics(per_task[n].to_numpy(dtype=np.float64))
            for n in REPORTED_TRIALS
            if n in per_task.columns
        },
    }


def tail_statistics(efficiencies: NDArray[np.float64]) -> dict[str, float]:
    """Mean, median, worst tenth, 10th percentile and minimum of one number a task, shape ``[n_tasks]``."""
    ordered = np.sort(efficiencies)
    return {
        "mean": float(ordered.mean()),
        "median": float(np.median(ordered)),
        "worst_tenth": float(ordered[: math.ceil(len(ordered) / 10)].mean()),
        "p10": float(np.quantile(ordered, 0.1)),
        "min": float(ordered[0]),
    }


def reading_ceiling(tables: Sequence[TaskTable]) -> dict[str, float]:
    """What choosing by one reading can reach: the efficiency of the fastest reading among *all* configs of a task.

    No search that sees one reading a config does better but by luck; a table's noise sets it.
    """
    chosen = [np.argmin(np.where(table.correct, table.reading_us, np.inf)) for table in tables]
    return tail_statistics(np.array([table.efficiency(int(row)) for table, row in zip(tables, chosen, strict=True)]))


def random_expectation(table: TaskTable, n_trials: int) -> NDArray[np.float64]:
    """Exact expected efficiency of uniform random search without replacement after 1 … ``n_trials`` trials.

    With the correct configs sorted by reading, the incumbent after k of N draws is number j (from 0) with probability
    C(N - 1 - j, k - 1) / C(N, k); failed configs rank behind all correct ones and count as efficiency 0.

    Returns:
        Shape ``[n_trials]``; the value stays once every config is drawn.
    """
    reading = np.where(table.correct, table.reading_us, np.inf)
    efficiency = table.efficiencies[np.argsort(reading, kind="stable")]
    n = len(efficiency)
    expected = np.empty(n_trials)
    for trial in range(n_trials):
        k = min(trial + 1, n)
        # By recurrence, without large binomials: P(0) = k / N, P(j) = P(j - 1) · (N - k - j + 1) / (N - j).
        later = np.arange(1, n)
        ratios = np.clip((n - k - later + 1) / (n - later), 0.0, None)
        probability = (k / n) * np.concatenate([[1.0], np.cumprod(ratios)])
        expected[trial] = float(probability @ efficiency)
    return expected
