"""A kernel that exists on paper only: a small space with every parameter kind and a made-up runtime.

Its best config moves with the shape, and half of its variation is in the features, as for real kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec, Shape, ceil_div
from bo_tuner.space import Columns, Config, Pool, Rule, SearchSpace, categorical, integer, power_of_two
from bo_tuner.storage.schema import device_to_json
from bo_tuner.storage.tables import TaskTable, read_tables, write_tables
from bo_tuner.study import Status
from bo_tuner.task import Device, Task, device_named


def _splits(columns: Columns, task: Task) -> NDArray[np.bool_]:
    return np.asarray(ceil_div(task.shape["rows"], columns["tile"]) < task.device.n_sms)


class ToySpec(KernelSpec):
    """Copies rows × cols in tiles; ``split`` has an effect only where the tiles leave SMs idle."""

    name: ClassVar[str] = "toy"
    shape_keys: ClassVar[tuple[str, ...]] = ("rows", "cols")
    program_module: ClassVar[str] = "tests.toy_program"
    compiled_dimensions: ClassVar[tuple[str, ...] | None] = ()
    space: ClassVar[SearchSpace] = SearchSpace(
        (
            power_of_two("tile", 16, 256),
            integer("stages", (1, 2, 3)),
            categorical("loader", ("ptr", "tma")),
            categorical("fast", (False, True)),
            power_of_two("split", 2, 4, active=_splits, neutral=1),
            power_of_two("group", 1, 4, launch=True),
        ),
        (Rule("tile × stages over 512", lambda columns, task: columns["tile"] * columns["stages"] > 512),),
    )

    def check_shape(self, shape: Shape) -> None:
        if shape["cols"] > 1 << 20:
            raise UserError(f"cols: {shape['cols']} is more than 1048576")

    def flops(self, shape: Shape) -> float:
        return 2.0 * shape["rows"] * shape["cols"]

    def min_bytes(self, shape: Shape) -> float:
        return 4.0 * shape["rows"] * shape["cols"]

    def shared_bytes(self, columns: Columns, task: Task) -> NDArray[np.int64]:
        return np.asarray(columns["tile"] * columns["stages"] * 128, dtype=np.int64)

    def warps(self, columns: Columns) -> NDArray[np.int64]:
        return np.full(len(columns["tile"]), 4)

    def features(self, pool: Pool) -> dict[str, NDArray[np.float64]]:
        columns, shape = pool.columns, pool.task.shape
        waves = ceil_div(shape["rows"], columns["tile"]) * columns["split"] / pool.task.device.n_sms
        return {
            "log_waves": np.log2(waves),
            "wave_efficiency": waves / np.ceil(waves),
            "log_cols": np.full(len(pool), np.log2(shape["cols"])),
        }

    def draw_shape(self, rng: np.random.Generator) -> dict[str, int]:
        return {"rows": int(2 ** rng.uniform(5, 14)), "cols": int(2 ** rng.uniform(6, 13))}

    def default_config(self, task: Task) -> Config:
        return self.pool(task).config(0)


def runtime_us(pool: Pool) -> NDArray[np.float64]:
    """The made-up time of every config of a pool, in µs; shape ``[len(pool)]``."""
    columns, shape = pool.columns, pool.task.shape
    waves = np.ceil(ceil_div(shape["rows"], columns["tile"]) * columns["split"] / pool.task.device.n_sms)
    work = waves * columns["tile"] * shape["cols"] / columns["split"]
    ideal_stages = 1 + (shape["cols"] > 512) + (shape["cols"] > 4096)
    slower = 1 + 0.15 * np.abs(columns["stages"] - ideal_stages) + 0.1 * (columns["loader"] == "ptr")
    slower = slower + 0.05 * columns["fast"] * (columns["tile"] < 64) - 0.05 * columns["fast"] * (columns["tile"] >= 64)
    slower = slower + 0.02 * np.abs(np.log2(columns["group"]) - (shape["rows"] > 4096))
    return np.asarray((5 + 1e-3 * work + 2 * (columns["split"] > 1)) * slower, dtype=np.float64)


def toy_frames(
    spec: KernelSpec, tasks: Sequence[Task], seed: int = 0, log_sd: float = 0.005
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows and task rows as a collector would write them; every 37th config of a pool fails to compile."""
    rng, frames, facts = np.random.default_rng(seed), [], []
    for task in tasks:
        pool = spec.pool(task)
        final = runtime_us(pool)
        failed = np.arange(len(pool)) % 37 == 36
        screening = final * np.exp(log_sd * rng.standard_normal(len(pool)))
        finalist = ~failed & (final <= np.sort(final[~failed])[min(7, (~failed).sum() - 1)])
        frame: dict[str, Any] = {key: task.shape[key] for key in spec.shape_keys}
        for p in pool.parameters:
            frame[p.name] = pd.Series(pool.columns[p.name], dtype=object).where(pool.active[p.name], None)
        frame |= {
            "status": np.where(failed, Status.COMPILE.value, Status.CORRECT.value),
            "screening_us": np.where(failed, np.nan, screening),
            "n_readings": np.where(failed, 0, 2),
            "final_us": np.where(failed, np.nan, final),
            "q25_us": np.where(finalist, final * 0.99, np.nan),
            "q75_us": np.where(finalist, final * 1.01, np.nan),
            "n_final_readings": np.where(finalist, 20, 0),
            "rel_error": np.where(failed, np.nan, 1e-3),
            "compile_s": 0.5,
            "n_registers": 32 + 8 * pool.columns["stages"],
            "n_spill_bytes": 0,
            "shared_bytes": spec.shared_bytes(pool.columns, task),
            "message": np.where(failed, "ptxas error", ""),
        }
        frames.append(pd.DataFrame(frame))
        facts.append(
            dict(task.shape)
            | {
                "n_configs": len(pool),
                "library": "memcpy",
                "library_us": float(final[~failed].min()),
                "baselines": "{}",
            }
            | {
                "sm_clock_start_mhz": 1980,
                "sm_clock_end_mhz": 1980,
                "gpu": "0000",
                "collect_s": 1.0,
                "date": "2026-11-29",
            }
        )
    return pd.concat(frames, ignore_index=True), pd.DataFrame(facts)


TOY_DEVICE = "nvidia_h200"


def toy_metadata(device: Device) -> Mapping[str, str]:
    """What a collector would add to a file."""
    return {
        "device": device_to_json(device),
        "source_hash": "",
        "timing_policy": "{}",
        "versions": '{"triton": "3.6.0"}',
    }


def write_toy(path: Path, spec: KernelSpec, n_tasks: int, seed: int, device: str = TOY_DEVICE) -> Path:
    """A table file of ``n_tasks`` sampled shapes."""
    where = device_named(device)
    tasks = [spec.task(shape, where) for shape in spec.sample_shapes(n_tasks, seed)]
    write_tables(path, spec, *toy_frames(spec, tasks, seed), toy_metadata(where))
    return path


def toy_tables(folder: Path, spec: KernelSpec, n_tasks: int, seed: int, device: str = TOY_DEVICE) -> list[TaskTable]:
    """The same, read back."""
    return read_tables(write_toy(folder / f"seed{seed}.parquet", spec, n_tasks, seed, device), spec)
