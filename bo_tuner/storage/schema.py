"""The columns of a recorded table and of its task file, built from the kernel's spec."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import Parameter
from bo_tuner.task import Device

SCHEMA_VERSION = "2"
#: Names of the file metadata; each is stored under the key ``bo_tuner.<name>``.
METADATA = (
    *("schema_version", "kernel", "dtype", "device", "space", "space_version", "source_hash", "timing_policy"),
    "versions",
)


def row_schema(spec: KernelSpec) -> pa.Schema:
    """One row a (shape, config). Times are microseconds; null where there is nothing to say."""
    return pa.schema(
        [(key, pa.int32()) for key in spec.shape_keys]
        + [(parameter.name, _arrow_type(parameter)) for parameter in spec.space.parameters]
        + [
            ("status", pa.string()),
            ("screening_us", pa.float32()),
            ("n_readings", pa.int16()),
            ("final_us", pa.float32()),
            ("q25_us", pa.float32()),
            ("q75_us", pa.float32()),
            ("n_final_readings", pa.int16()),
            ("rel_error", pa.float32()),
            ("compile_s", pa.float32()),
            ("n_registers", pa.int16()),
            ("n_spill_bytes", pa.int32()),
            ("shared_bytes", pa.int32()),
            ("message", pa.string()),
        ]
    )


def task_schema(spec: KernelSpec) -> pa.Schema:
    """One row a task: the library baseline timed in the same round, clocks, GPU, cost and date."""
    return pa.schema(
        [(key, pa.int32()) for key in spec.shape_keys]
        + [
            ("n_configs", pa.int32()),
            ("library", pa.string()),
            ("library_us", pa.float32()),
            ("baselines", pa.string()),
            ("sm_clock_start_mhz", pa.int32()),
            ("sm_clock_end_mhz", pa.int32()),
            ("gpu", pa.string()),
            ("collect_s", pa.float32()),
            ("date", pa.string()),
        ]
    )


def tasks_path(path: Path) -> Path:
    """The task file that stands beside a table: ``train.parquet`` → ``train_tasks.parquet``."""
    return path.with_name(f"{path.stem}_tasks.parquet")


def is_task_file(path: Path) -> bool:
    """Whether a file is the task file of a table rather than a table."""
    return path.stem.endswith("_tasks")


def device_to_json(device: Device) -> str:
    """The device's facts as the file metadata keeps them."""
    return json.dumps(asdict(device))


def device_from_json(text: str) -> Device:
    """Inverse of :func:`device_to_json`."""
    facts = json.loads(text)
    return Device(**{**facts, "capability": tuple(facts["capability"])})


def _arrow_type(parameter: Parameter) -> pa.DataType:
    kinds = {type(value) for value in parameter.values}
    if kinds == {bool}:
        return pa.bool_()
    return pa.int32() if kinds == {int} else pa.string()
