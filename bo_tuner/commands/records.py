"""What a command writes with ``--json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bo_tuner.storage.tables import TaskTable
    from bo_tuner.study import Study, Trial


def study_record(
    study: Study, table: TaskTable | None = None, baselines_us: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """A study as JSON values.

    Args:
        study: the run.
        table: what was replayed; adds how good the chosen config is. ``efficiency`` is the table's best final time
            over the chosen config's final time.
        baselines_us: times of library calls, from a live run.

    ``distance`` holds shares of the chosen config's time, see :class:`~bo_tuner.study.Distance`; null where the method
    cannot tell.
    """
    record: dict[str, Any] = {
        "kernel": study.task.kernel,
        "shape": dict(study.task.shape),
        "dtype": study.task.dtype,
        "device": study.task.device.key,
        "method": study.method,
        "seed": study.seed,
        "n_trials": len(study.trials),
        "compile_s": sum(trial.measurement.compile_s for trial in study.trials),
        "ask_s": sum(trial.ask_s for trial in study.trials),
        "best": None if study.best is None else _trial_record(study.best),
        "distance": None if study.distance is None else asdict(study.distance),
        "trials": [_trial_record(trial) for trial in study.trials],
    }
    if table is not None:
        record |= {"n_configs": len(table), "table_best_us": _finite(table.best_us)}
        baselines_us = {table.library: table.library_us} if table.library else {}
        record["efficiency"] = 0.0
        if study.best is not None:
            row = table.pool.index(study.best.config)
            record["efficiency"] = table.efficiency(row)
            record["final_us"] = float(table.final_us[row])
    record["baselines_us"] = dict(baselines_us or {})
    return record


def _trial_record(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.index + 1,
        "status": trial.measurement.status.value,
        "time_us": _finite(trial.measurement.time_us),
        "compile_s": trial.measurement.compile_s,
        "message": trial.measurement.message,
        "config": dict(trial.config),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
