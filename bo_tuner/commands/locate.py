"""Where recorded tables and priors are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import bo_tuner
from bo_tuner.errors import UserError

if TYPE_CHECKING:
    from bo_tuner.kernels import KernelSpec
    from bo_tuner.storage.tables import TaskTable
    from bo_tuner.task import Device


def tables_root(given: Path | None) -> Path:
    """The folder of recorded tables: the given one, ``data/`` here, or ``data/`` of the checkout.

    Raises:
        UserError: there is no such folder.
    """
    if given is not None:
        if not given.is_dir():
            raise UserError(f"--tables: {given} is no folder")
        return given
    beside_package = Path(bo_tuner.__file__).parent.parent / "data"
    for folder in (Path("data"), beside_package):
        if folder.is_dir():
            return folder
    raise UserError("--tables: there is no folder data/ here; name the folder that holds the recorded tables")


def table_paths(root: Path, spec: KernelSpec, device: Device, split: str) -> list[Path]:
    """The files of a kernel, device and split; ``*`` stands for every split.

    Raises:
        UserError: there is none.
    """
    from bo_tuner.storage.tables import find_tables

    paths = find_tables(root, spec.name, device.key, split)
    return [path for path in paths if not path.stem.endswith("_tasks")]


def read_split(root: Path, spec: KernelSpec, device: Device, split: str) -> list[TaskTable]:
    """Every recorded task of a kernel, device and split.

    Raises:
        UserError: there is no file, or a file has a fault.
    """
    from bo_tuner.storage.tables import read_tables

    return [table for path in table_paths(root, spec, device, split) for table in read_tables(path, spec)]


def spread(tables: Sequence[TaskTable], n: int) -> list[TaskTable]:
    """At most ``n`` tasks, from the fastest to the slowest in even steps."""
    ordered = sorted(tables, key=lambda table: table.best_us)
    if n >= len(ordered):
        return ordered
    return [ordered[round(step * (len(ordered) - 1) / max(n - 1, 1))] for step in range(n)]
