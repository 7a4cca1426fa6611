"""Priors that an experiment trains for itself: from which sources, and each only once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bo_tuner.calibration import calibrate_distance
from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import TRAIN_SEED, KernelSpec
from bo_tuner.storage.compiled import CompiledFacts
from bo_tuner.storage.schema import device_from_json
from bo_tuner.storage.tables import TaskTable, find_tables, read_metadata, read_tables
from bo_tuner.surrogates.meta_gp import MetaGP
from experiments.record import checksum, code_hash

log = logging.getLogger(__name__)

#: Arguments of the surrogate that decide what is trained; the others act online.
TRAINING = ("mean", "mean_options", "covariance_options")

#: Sources that calibrate the distance to the best; fewer than ``bo-tuner meta-train`` takes, for time.
N_CALIBRATED = 32


def source_paths(
    root: Path, spec: KernelSpec, *, devices: Sequence[str] | None, without: str | None, n_devices: int | None
) -> list[Path]:
    """Train tables of the source devices, the one with most multiprocessors first.

    Args:
        root: folder of the tables.
        spec: the kernel.
        devices: keys of the devices, all if None.
        without: key of a device that is left out.
        n_devices: take the first so many.

    Raises:
        UserError: a device has no table, or none is left.
    """
    paths = {path.parent.name: path for path in find_tables(root, spec.name, split="train")}
    if unknown := sorted(set(devices or ()) - set(paths)):
        raise UserError(f"sources.devices: {unknown[0]!r} is not one of {', '.join(sorted(paths))}")
    wanted = [key for key in paths if (devices is None or key in devices) and key != without]
    ordered = sorted(wanted, key=lambda key: -device_from_json(read_metadata(paths[key])["device"]).n_sms)
    if not ordered[:n_devices]:
        raise UserError(f"sources.without: {without!r} leaves no device to learn from")
    return [paths[key] for key in ordered[:n_devices]]


def first_shapes(tables: Sequence[TaskTable], spec: KernelSpec, n_shapes: int | None) -> list[TaskTable]:
    """The tasks of the first ``n_shapes`` shapes of the published draw; all if None."""
    if n_shapes is None:
        return list(tables)
    drawn = {tuple(shape.values()) for shape in spec.sample_shapes(n_shapes, TRAIN_SEED)}
    return [table for table in tables if tuple(table.task.shape.values()) in drawn]


def recorded_facts(spec: KernelSpec, paths: Sequence[Path], folder: Path) -> CompiledFacts:
    """What the recorder's compiler said of the configs of some tables, gathered once and kept in ``folder``."""
    key = hashlib.sha256("".join(checksum(path) for path in paths).encode()).hexdigest()[:16]
    kept = folder / f"{spec.name}-{key}-compiled"
    if not kept.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            facts = CompiledFacts(Path(scratch) / kept.name, spec)
            for path in paths:
                facts.add_recorded(path)
            with contextlib.suppress(OSError):  # another job was faster
                facts.folder.rename(kept)
    return CompiledFacts(kept, spec)


def trained_prior(
    spec: KernelSpec, paths: Sequence[Path], n_shapes: int | None, options: Mapping[str, Any], folder: Path
) -> MetaGP:
    """A prior trained on some tables, from ``folder`` if the same was trained before by the same code.

    Args:
        spec: the kernel.
        paths: train tables.
        n_shapes: use the first so many shapes.
        options: of :class:`MetaGP`.
        folder: where priors are kept.

    Raises:
        UserError: the sources are too few, or an option is wrong.
    """
    training = {key: options[key] for key in TRAINING if key in options}
    compiled: CompiledFacts | None = options.get("compiled")
    recipe = {
        "kernel": spec.name,
        "tables": [checksum(path) for path in paths],
        "n_shapes": n_shapes,
        "options": training,
        "compiled": compiled is not None,  # what the compiler says is read from the same tables
        "code": code_hash("surrogates", "kernels", "storage", "searchers", "calibration.py", "tuner.py"),
    }
    key = hashlib.sha256(json.dumps(recipe, sort_keys=True, default=dict).encode()).hexdigest()[:16]
    path = folder / f"{spec.name}-{key}.safetensors"
    if not path.is_file():
        sources = first_shapes([table for one in paths for table in read_tables(one, spec)], spec, n_shapes)
        log.info("training a prior of %s on %d tasks", spec.name, len(sources))
        surrogate = MetaGP(**training, compiled=compiled).meta_fit(sources, spec)
        calibrate_distance(surrogate, sources, n_tasks=N_CALIBRATED)
        surrogate.save(path)
    return MetaGP.load(path, spec, **options)
