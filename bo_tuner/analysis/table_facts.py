"""What recorded tables hold: how much, how it compares with the library, and what every parameter value is worth.

All functions take tidy frames.

*Tasks* have one row a shape: ``file``, ``kernel``, ``device``, ``split``, ``shape``, ``n_configs``, ``n_finalists``,
``collect_s``, ``best_us`` (the best final time), ``best_config``, ``library`` and ``library_us`` (NaN where none ran).

*Rows* have one row a (shape, config): ``task``, any value that tells the shapes apart; ``final_us``; ``correct``; and a
categorical column a parameter, whose categories are the parameter's values in order and which is empty where the
parameter has no effect. Every shape has a correct config, else there is no best to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

#: Shapes with a best final time, in µs, below this are short.
SHORT_US = 15.0
#: A shape is slow when the library needs less than this share of the best config's time.
SLOW = 0.85
#: How far from the best is still near it, as a ratio of times.
NEAR = 1.02


def table_sizes(tasks: pd.DataFrame) -> pd.DataFrame:
    """One row a table file, in the order of the tasks.

    Columns: ``file``, ``kernel``, ``device``, ``split``; ``n_shapes``, ``n_configs`` and of a shape ``n_configs_min``,
    ``_median`` and ``_max``; ``n_finalists``; ``configs_per_s`` of ``collect_s``, and ``configs_per_s_short`` over the
    shapes under ``SHORT_US``; library time over best time, ``ratio`` as the geometric mean and ``ratio_min``, and the
    percentages of shapes where it is .85 and .75 or more. NaN where there is nothing to count.
    """
    return pd.DataFrame([_sizes(table) for _, table in tasks.groupby("file", sort=False)])


def slow_shapes(tasks: pd.DataFrame) -> pd.DataFrame:
    """The shapes whose library / best is under ``SLOW``, the lowest first within each file.

    Columns: ``file``, ``shape``, ``best_us``, ``library_us``, ``library``, ``ratio``, ``best_config``.
    """
    found = tasks.assign(ratio=_ratio(tasks), order=pd.factorize(tasks["file"])[0])
    found = found[found["ratio"] < SLOW].sort_values(["order", "ratio"], kind="stable", ignore_index=True)
    return found[["file", "shape", "best_us", "library_us", "library", "ratio", "best_config"]]


def value_worth(rows: pd.DataFrame, parameters: Sequence[str]) -> pd.DataFrame:
    """One row a parameter and value, in the parameters' own order; all figures are percentages.

    A value is not used where its parameter has no effect. Columns: ``parameter``, ``value``; ``best_percent`` of shapes
    whose best config (of equals the first) uses the value; ``near_percent`` of shapes where the fastest config with it
    is within ``NEAR`` of the best; ``rows_percent`` of all configs that use it, failed ones too; ``only_percent`` of
    shapes where no other config is correct; over the rest of the shapes ``cost_percent``, the mean of 1 - best / best
    of the configs that do not use the value, and ``worst_percent``, the largest of these; NaN where no shape is left.
    """
    order = np.argsort(pd.factorize(rows["task"])[0], kind="stable")
    task = rows["task"].to_numpy()[order]
    starts = np.flatnonzero(np.r_[True, task[1:] != task[:-1]])
    final_us = np.where(rows["correct"], rows["final_us"], np.inf)[order]
    best_us = np.minimum.reduceat(final_us, starts)
    winners = [start + int(part.argmin()) for start, part in zip(starts, np.split(final_us, starts[1:]), strict=True)]

    found = []
    for parameter in parameters:
        codes = rows[parameter].cat.codes.to_numpy()[order]
        for code, value in enumerate(rows[parameter].cat.categories.tolist()):
            uses = codes == code
            with_us = np.minimum.reduceat(np.where(uses, final_us, np.inf), starts)
            without_us = np.minimum.reduceat(np.where(uses, np.inf, final_us), starts)
            others = np.isfinite(without_us)
            cost = pd.Series(1 - best_us[others] / without_us[others])
            found.append(
                {
                    "parameter": parameter,
                    "value": value,
                    "best_percent": 100 * float(uses[winners].mean()),
                    "near_percent": 100 * float((with_us <= NEAR * best_us).mean()),
                    "rows_percent": 100 * float(uses.mean()),
                    "only_percent": 100 * float((~others).mean()),
                    "cost_percent": 100 * float(cost.mean()),
                    "worst_percent": 100 * float(cost.max()),
                }
            )
    return pd.DataFrame(found)


def _sizes(table: pd.DataFrame) -> dict[str, object]:
    ratio = _ratio(table).dropna()
    sizes = table["n_configs"]
    return {
        **{name: table[name].iloc[0] for name in ("file", "kernel", "device", "split")},
        "n_shapes": len(table),
        "n_configs": int(sizes.sum()),
        "n_configs_min": int(sizes.min()),
        "n_configs_median": float(sizes.median()),
        "n_configs_max": int(sizes.max()),
        "n_finalists": int(table["n_finalists"].sum()),
        "configs_per_s": _speed(table),
        "configs_per_s_short": _speed(table[table["best_us"] < SHORT_US]),
        "ratio": float(np.exp(np.log(ratio).mean())),
        "ratio_min": float(ratio.min()),
        "at_85_percent": 100 * float((ratio >= 0.85).mean()),
        "at_75_percent": 100 * float((ratio >= 0.75).mean()),
    }


def _ratio(tasks: pd.DataFrame) -> pd.Series[float]:
    """Library time over best time; NaN where no library ran."""
    return tasks["library_us"] / tasks["best_us"]


def _speed(tasks: pd.DataFrame) -> float:
    """Configs a second over the shapes whose duration is known."""
    timed = tasks[tasks["collect_s"] > 0]
    return float(timed["n_configs"].sum() / timed["collect_s"].sum()) if len(timed) else float("nan")
