"""Whether a method knows how good it is, and where it fails: out of the frame that ``protocol.verify`` returns."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bo_tuner.analysis.statistics import coverage


def calibration(studies: pd.DataFrame) -> dict[str, float]:
    """How far predictions were off, in units of what the model said of itself.

    Args:
        studies: one method's rows; columns ``trial``, ``z``, ``efficiency``, ``distance`` and ``distance_bound`` (NaN
            where the method cannot tell).

    Returns:
        ``z sd`` and ``z within 95 %`` over the trials after the first; and after the last trial, means over tasks of
        the ``distance said`` and the distance there was (``distance true``), and the share of tasks whose distance was
        within its bound (``bound held``).
    """
    z = studies.loc[studies["trial"] > 1, "z"].dropna().to_numpy()
    last = studies[studies["trial"] == studies["trial"].max()]
    told = pd.DataFrame({"trial": last["trial"], "predicted": last["distance"], "bound": last["distance_bound"]})
    ((_, distance),) = coverage(told.assign(true=1.0 - last["efficiency"])).iterrows()
    return {
        "z sd": float(np.std(z)) if len(z) else np.nan,
        "z within 95 %": float(np.mean(np.abs(z) <= 1.96)) if len(z) else np.nan,
        "distance said": float(distance["predicted"]),
        "distance true": float(distance["true"]),
        "bound held": float(distance["covered"]),
    }


def worst_tasks(studies: pd.DataFrame, n: int = 10) -> pd.DataFrame:
    """The tasks with the lowest efficiency after the last trial, and what was wrong.

    Args:
        studies: one method's rows, see the package's docstring; and ``tried``, the efficiency of the trial's config.
        n: how many tasks.

    Returns:
        One row a task: ``task``, ``time_us`` (of the chosen config), ``efficiency``, ``tried`` (the best efficiency
        among the tried configs) and ``reason``.
    """
    last = studies[studies["trial"] == studies["trial"].max()]
    tried = studies.groupby("task")["tried"].max()
    rows = []
    for row in last.sort_values("efficiency").head(n).to_dict("records"):
        best = float(tried[row["task"]])
        missed, misread = 1.0 - best, best - row["efficiency"]
        noise, search = "noise: a faster one was tried and read slower", "search: none faster was tried"
        rows.append(
            {
                "task": row["task"],
                "time_us": row["final_us"],
                "efficiency": row["efficiency"],
                "tried": best,
                "reason": noise if misread > missed else search,
            }
        )
    return pd.DataFrame(rows)
