"""What a saved prior says of itself: which kernel, space and features it was trained for, on which sources."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import Pool
from bo_tuner.storage.alignment import space_fingerprint
from bo_tuner.storage.schema import device_from_json, device_to_json
from bo_tuner.storage.tables import TaskTable
from bo_tuner.surrogates.features import COMPILED_PREFIX, design_matrix
from bo_tuner.surrogates.meta_train import MetaPrior


def make_header(
    sources: Sequence[TaskTable], spec: KernelSpec, prior: MetaPrior, mean: str, mean_options: Mapping[str, Any]
) -> dict[str, Any]:
    """Where a prior comes from and what it fits to."""
    probe = sources[0].task
    return {
        "kernel": spec.name,
        "space": space_fingerprint(spec),
        "feature_names": list(prior.feature_names),
        "devices": list(prior.devices),
        "sources": [table.task.key for table in sources],
        "smooth": prior.smooth,
        "device_scale": prior.device_scale,
        "mean": mean,
        "mean_options": dict(mean_options),
        "probe": {
            "shape": dict(probe.shape),
            "device": device_to_json(probe.device),
            "sums": _feature_sums(spec, sources[0].pool),
        },
        "date": datetime.date.today().isoformat(),
        "versions": {name: importlib.metadata.version(name) for name in ("lightgbm", "torch", "botorch", "numpy")},
    }


def check_header(path: Path | str, header: Mapping[str, Any], spec: KernelSpec, *, compiled: bool) -> None:
    """Refuse a prior that does not fit to a kernel as it is now, or to what the caller has of the compiler.

    Names can stay while what a feature means changes, so the values on one source task are compared too.

    Raises:
        UserError: the prior was trained for something else; the text names the file, the field and what to do.
    """
    needed = ("kernel", "space", "feature_names", "probe", "smooth", "devices", "sources")
    missing = [key for key in needed if key not in header]
    if missing:
        raise UserError(f"{path}: {missing[0]}: is missing")
    if header["kernel"] != spec.name:
        raise UserError(f"{path}: kernel: was trained for {header['kernel']}, not {spec.name}")
    if header["space"] != space_fingerprint(spec):
        raise UserError(f"{path}: space: was trained for another version of {spec.name}'s search space, train it again")
    of_compiler = any(name.startswith(COMPILED_PREFIX) for name in header["feature_names"])
    if of_compiler and not compiled:
        raise UserError(f"{path}: compiled: was trained with what the compiler says; name the folder of that")
    if compiled and not of_compiler:
        raise UserError(f"{path}: compiled: was trained without what the compiler says, which it has no use for")
    probe = header["probe"]
    pool = spec.pool(spec.task(probe["shape"], device_from_json(probe["device"])))
    sums = _feature_sums(spec, pool)
    if list(sums) != [name for name in header["feature_names"] if not name.startswith(COMPILED_PREFIX)]:
        raise UserError(f"{path}: feature_names: was trained on other features of {spec.name}, train it again")
    for name, value in sums.items():
        if not np.isclose(value, probe["sums"][name], rtol=1e-6, atol=1e-9):
            raise UserError(f"{path}: feature {name}: means something else than at training, train the prior again")


def _feature_sums(spec: KernelSpec, pool: Pool) -> dict[str, float]:
    """Of what the spec says; what a compiler says may change with its version."""
    names, features = design_matrix(spec, pool)
    return {name: float(total) for name, total in zip(names, features.sum(axis=0), strict=True)}
