"""How far a recorded table can be trusted: within one recording, and against a repeat of it.

All functions take tidy frames with one row a (task, config): ``task``, ``config``, ``screening_us``, ``final_us`` and
``n_final`` (0 for a config that was no finalist); failed configs are left out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from bo_tuner.analysis.table_facts import SHORT_US

#: Upper ends, in µs of the best final time, of the classes that noise is reported by: scatter falls as kernels grow.
TIME_CLASSES = (SHORT_US, 100.0, 500.0, np.inf)


def time_class(best_us: float) -> str:
    """The class of a task by its best time."""
    lower = (0.0, *TIME_CLASSES[:-1])
    place = int(np.searchsorted(TIME_CLASSES, best_us))
    low, high = lower[place], TIME_CLASSES[place]
    return f"over {low:g} µs" if np.isinf(high) else f"{low:g} to {high:g} µs"


def within_recording(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a task: what its own readings say of their noise.

    Columns: ``best_us``; ``curse``, how much too fast the fastest screening reading is, as the log of the best final
    time over it, the level that finalists share taken out; ``reading_choice``, the efficiency of the config with the
    fastest screening reading; ``reading_noise``, the standard deviation of log(screening / final) over the finalists;
    ``ties``, the number of configs whose final time is within that noise of the best.
    """

    def one(task: pd.DataFrame) -> dict[str, float]:
        screening, final, n_final = (task[name].to_numpy() for name in ("screening_us", "final_us", "n_final"))
        best, chosen = final.min(), screening.argmin()
        ratio = np.log(screening / final)[n_final > 0]
        noise = float(ratio.std()) if len(ratio) else 0.0
        level = float(np.median(ratio)) if len(ratio) else 0.0
        return {
            "best_us": best,
            "curse": float(np.log(best / screening[chosen])) + level,
            "reading_choice": best / final[chosen],
            "reading_noise": noise,
            "ties": float((final <= best * np.exp(noise)).sum()),
        }

    return _per_task(frame, one)


def between_recordings(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """One row a task that both recordings have: how well the second repeats the first.

    Columns: ``best_us`` (of the new one); ``median`` and ``p90`` of |log(new / old)| over the configs' final times, the
    shift that all share taken out (clocks differ between occasions, ratios are what a table is for); ``finalists``, the
    same median over configs that were finalists both times; ``rank``, Spearman's rank correlation; ``kept``, the
    efficiency in the new recording of the config that was best in the old one.
    """
    both = old.merge(new, on=["task", "config"], suffixes=("_old", "_new"))

    def one(task: pd.DataFrame) -> dict[str, float]:
        before, after = task["final_us_old"].to_numpy(), task["final_us_new"].to_numpy()
        ratio = np.log(after / before)
        deviation = np.abs(ratio - np.median(ratio))
        timed_well = task[["n_final_old", "n_final_new"]].to_numpy().min(axis=1) > 0
        return {
            "best_us": after.min(),
            "median": float(np.median(deviation)),
            "p90": float(np.quantile(deviation, 0.9)),
            "finalists": float(np.median(deviation[timed_well])) if timed_well.any() else np.nan,
            "rank": float(spearmanr(before, after).statistic),
            "kept": after.min() / after[before.argmin()],
        }

    return _per_task(both, one)


def by_time_class(tasks: pd.DataFrame) -> pd.DataFrame:
    """Medians over the tasks of each time class, and over all; ``n_tasks`` counts them.

    Of ``kept`` and ``reading_choice`` the shares of tasks at .99 and .98 or more are given as well.
    """
    groups = [(name, tasks[tasks["class"] == name]) for name in map(time_class, TIME_CLASSES)]
    rows = []
    for name, group in [*groups, ("all", tasks)]:
        if group.empty:
            continue
        row = {"best time": name, "n_tasks": len(group), **group.drop(columns=["class", "best_us"]).median().to_dict()}
        for column in ("kept", "reading_choice"):
            if column in group:
                row |= {f"{column} ≥ {least}": float((group[column] >= least).mean()) for least in (0.99, 0.98)}
        rows.append(row)
    return pd.DataFrame(rows)


def _per_task(frame: pd.DataFrame, one: Callable[[pd.DataFrame], dict[str, float]]) -> pd.DataFrame:
    tasks = pd.DataFrame({task: one(group) for task, group in frame.groupby("task", sort=False)}).T
    tasks["class"] = tasks["best_us"].map(time_class)
    return tasks.rename_axis("task")
