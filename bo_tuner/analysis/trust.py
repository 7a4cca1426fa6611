"""Whether a method knows how good it is, and where it fails: out of the frame that ``protocol.verify`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


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
    true = 1.0 - last["efficiency"].to_numpy()
    return {
        "z sd": float(np.std(z)) if len(z) else np.nan,
        "z within 95 %": float(np.mean(np.abs(z) <= 1.96)) if len(z) else np.nan,
        "distance said": float(last["distance"].mean()),
        "distance true": float(true.mean()),
        "bound held": float(np.mean(true <= last["distance_bound"].to_numpy() + 1e-12)),
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
    import pandas as pd

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
