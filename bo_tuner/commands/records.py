"""What a command writes with ``--json``, and how it is read again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bo_tuner.errors import UserError

if TYPE_CHECKING:
    from bo_tuner.kernels import KernelSpec
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
        "device_facts": asdict(study.task.device),
        "method": study.method,
        "seed": study.seed,
        "n_trials": len(study.trials),
        "n_saved": study.n_saved,
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


def read_record(path: Path) -> dict[str, Any]:
    """What ``bo-tuner tune --json`` wrote.

    Raises:
        UserError: the file is missing or no such record.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"RECORD: {path} cannot be read ({str(error).splitlines()[0]})") from None
    if not isinstance(record, dict):
        raise UserError(f"RECORD: {path} is no record of bo-tuner tune --json")
    for key in ("kernel", "shape", "device_facts", "method", "seed", "trials"):
        if key not in record:
            raise UserError(f"RECORD: {path}: {key}: is missing; write it with bo-tuner tune --json of this version")
    return record


def study_of_record(path: Path, record: Mapping[str, Any], spec: KernelSpec) -> Study:
    """The study that a record tells of.

    Raises:
        UserError: the record is of another kernel, a value is not what it should be, or a config is not valid.
    """
    from bo_tuner.study import Measurement, Status, Study, Trial
    from bo_tuner.task import Device

    if record["kernel"] != spec.name:
        raise UserError(f"RECORD: {path}: kernel: {record['kernel']} is not {spec.name}")
    try:
        facts = record["device_facts"]
        task = spec.task(record["shape"], Device(**{**facts, "capability": tuple(facts["capability"])}))
        pool = spec.pool(task)
        trials = []
        for at, one in enumerate(record["trials"]):
            result = Measurement(Status(one["status"]), tuple(one["readings_us"]), one["compile_s"], one["message"])
            pool.index(one["config"])
            trials.append(Trial(at, one["config"], result))
        return Study(task, str(record["method"]), int(record["seed"]), tuple(trials))
    except UserError as error:
        raise UserError(f"RECORD: {path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"RECORD: {path}: is damaged ({type(error).__name__}: {error})") from None


def _trial_record(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.index + 1,
        "status": trial.measurement.status.value,
        "time_us": _finite(trial.measurement.time_us),
        "readings_us": list(trial.measurement.readings_us),
        "compile_s": trial.measurement.compile_s,
        "message": trial.measurement.message,
        "config": dict(trial.config),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
