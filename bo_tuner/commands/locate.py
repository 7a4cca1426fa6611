"""Where recorded tables and trained priors are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import bo_tuner
from bo_tuner.commands.arguments import DEFAULT_DEVICE
from bo_tuner.errors import UserError

if TYPE_CHECKING:
    from bo_tuner.kernels import KernelSpec
    from bo_tuner.storage.compiled import CompiledFacts
    from bo_tuner.storage.tables import TaskTable
    from bo_tuner.surrogates.meta_gp import MetaGP

EVERY_SPLIT = "*"
#: Folder beside the kernels' with second recordings, laid out like the first.
REPEAT = "repeat"


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


def table_paths(root: Path, spec: KernelSpec, device: str | None, split: str) -> list[Path]:
    """Table files of a kernel and split on one device.

    Without a device it is the only one that has tables, or the one that the shipped tables were recorded on.

    Raises:
        UserError: there is no such file, or it is not clear which device is meant.
    """
    from bo_tuner.storage.tables import find_tables

    paths = find_tables(root, spec.name, device, split)
    recorded = sorted({path.parent.name for path in paths})
    if len(recorded) > 1:
        if DEFAULT_DEVICE not in recorded:
            raise UserError(f"--device: must be one of {', '.join(recorded)}, which all have tables in {root}")
        paths = [path for path in paths if path.parent.name == DEFAULT_DEVICE]
    return paths


def table_files(given: Sequence[Path], repeats: bool = True) -> list[Path]:
    """The table files that some paths name, each once; a folder stands for all below it.

    Args:
        given: files and folders.
        repeats: whether second recordings in a folder count as well.

    Raises:
        UserError: a folder holds none.
    """
    from bo_tuner.storage.schema import is_task_file

    found: dict[Path, None] = {}
    for path in given:
        below = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        files = [file for file in below if not is_task_file(file)]
        files = [file for file in files if repeats or REPEAT not in file.parts[len(path.parts) :]]
        if not files:
            raise UserError(f"PATH: {path} holds no table file (*.parquet)")
        found |= dict.fromkeys(files)
    return list(found)


def read_split(root: Path, spec: KernelSpec, device: str | None, split: str) -> list[TaskTable]:
    """Every recorded task of a kernel and split on one device, see ``table_paths``.

    Raises:
        UserError: there is no file, or a file has a fault.
    """
    from bo_tuner.storage.tables import read_tables

    return [table for path in table_paths(root, spec, device, split) for table in read_tables(path, spec)]


def read_repeat(root: Path, spec: KernelSpec, device: str, split: str) -> list[TaskTable]:
    """The tasks of a split that were recorded a second time, in ``<root>/repeat``; empty if none were.

    Raises:
        UserError: a file has a fault.
    """
    from bo_tuner.storage.tables import read_tables

    path = root / REPEAT / spec.name / device / f"{split}.parquet"
    return read_tables(path, spec) if path.exists() else []


def spread(tables: Sequence[TaskTable], n: int) -> list[TaskTable]:
    """At most ``n`` tasks, from the fastest to the slowest in even steps."""
    from bo_tuner.storage.tables import evenly

    return evenly(sorted(tables, key=lambda table: (table.best_us, table.task.key)), n)


def prior_of_method(method: str, spec: KernelSpec, given: Path | None, compiled: Path | None = None) -> MetaGP | None:
    """The prior that a method needs: the given one, else the shipped one; None for a method that needs none.

    Args:
        method: name of the method.
        spec: the kernel.
        given: file of the prior.
        compiled: folder of what the compiler says of the configs.

    Raises:
        UserError: there is no such file, or it does not fit the kernel.
    """
    from bo_tuner.pretrained import load_prior
    from bo_tuner.searchers import needs_prior

    return load_prior(spec, given, compiled=compiled_facts(compiled, spec)) if needs_prior(method) else None


def compiled_facts(folder: Path | None, spec: KernelSpec) -> CompiledFacts | None:
    """What the compiler says of a kernel's configs, from a folder; None without one.

    Raises:
        UserError: there is no such folder.
    """
    from bo_tuner.storage.compiled import CompiledFacts

    if folder is not None and not folder.is_dir():
        raise UserError(f"--compiled: {folder} is no folder; bo-tuner compile makes one")
    return None if folder is None else CompiledFacts(folder, spec)
