"""What the noise of the readings leaves to a search: its choices again, with the errors of the readings drawn anew."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bo_tuner.protocol import reading_ceiling, tail_statistics
from bo_tuner.storage.tables import TaskTable

Floats = NDArray[np.float64]

#: Configs further behind the best than this are never chosen by mistake.
_NEAR = 0.8


def redrawn(table: TaskTable, efficiencies: Floats, n_draws: int, rng: np.random.Generator) -> Floats:
    """Efficiency of the config that reads fastest, when each reading's error is drawn anew; shape ``[n_draws]``.

    An error is log(reading / final time) of a finalist of the same task, drawn with replacement: finalists have many
    final readings, so their final time is known far better than one reading tells it.

    Args:
        table: whose errors are drawn.
        efficiencies: of the configs that may be chosen, ``[n]``.
        n_draws: how often.
        rng: draws.
    """
    finalists = table.n_final > 0
    errors = np.log(table.reading_us[finalists] / table.final_us[finalists])
    near = efficiencies[efficiencies > _NEAR * efficiencies.max()]
    if not len(near):
        return np.zeros(n_draws)
    read = rng.choice(errors, size=(n_draws, len(near))) - np.log(near)
    return np.asarray(near[np.argmin(read, axis=1)])


def noise_table(tables: list[TaskTable], studies: pd.DataFrame, n_draws: int = 500, seed: int = 0) -> pd.DataFrame:
    """Choices by the readings as recorded and with errors drawn anew, among all configs and among those tried.

    Args:
        tables: what was judged.
        studies: one method's rows, see :func:`bo_tuner.protocol.verify`; one seed a task.
        n_draws: how often errors are drawn.
        seed: of the draws.

    Returns:
        Two rows: ``among``, ``mean`` and ``worst tenth`` as recorded, and ``mean, redrawn`` and ``worst tenth,
        redrawn`` with their standard deviations over the draws.
    """
    rng = np.random.default_rng(seed)
    tried = {str(task): rows.to_numpy() for task, rows in studies.groupby("task")["tried"]}
    judged = [table for table in tables if table.task.key in tried]
    last = studies[studies["trial"] == studies["trial"].max()]
    recorded = {
        "all configs": reading_ceiling(judged),
        "the tried configs": tail_statistics(last["efficiency"].to_numpy(dtype=np.float64)),
    }
    drawn = {
        "all configs": [redrawn(table, table.efficiencies, n_draws, rng) for table in judged],
        "the tried configs": [redrawn(table, tried[table.task.key], n_draws, rng) for table in judged],
    }
    rows = []
    for among, by_task in drawn.items():
        found = pd.DataFrame([tail_statistics(draw) for draw in np.array(by_task).T])
        row: dict[str, str] = {"choice among": among}
        for name, title in (("mean", "mean"), ("worst_tenth", "worst tenth")):
            row[title] = f"{recorded[among][name]:.4f}"
            row[f"{title}, redrawn"] = f"{found[name].mean():.4f} ± {found[name].std():.4f}"
        rows.append(row)
    return pd.DataFrame(rows)
