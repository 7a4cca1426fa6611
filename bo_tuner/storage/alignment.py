"""Which config is which, over files, tasks and machines: integer codes and a fingerprint of the space.

A code is the config's position in the full product of its parameters' values (mixed radix). A parameter without effect
counts with its neutral value, so a config keeps its code in a task where one of its parameters happens to do nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import Columns, Parameter, Pool


def positions(parameter: Parameter, column: NDArray[Any]) -> NDArray[np.int64]:
    """Place of every value among the parameter's categories, -1 for a value that is none of them; shape ``[n]``."""
    categories = np.array(parameter.categories)
    order = np.argsort(categories)
    at = np.clip(np.searchsorted(categories, column, sorter=order), 0, len(categories) - 1)
    found: NDArray[np.int64] = order[at]
    return np.where(categories[found] == column, found, -1)


def config_codes(parameters: Sequence[Parameter], columns: Columns) -> NDArray[np.int64]:
    """Code of every config, shape ``[n]``; -1 where a value is unknown."""
    codes = np.zeros(len(columns[parameters[0].name]), dtype=np.int64)
    known = np.ones(len(codes), dtype=bool)
    for parameter in parameters:
        place = positions(parameter, columns[parameter.name])
        known &= place >= 0
        codes = codes * len(parameter.categories) + place
    return np.where(known, codes, -1)


def pool_codes(pool: Pool) -> NDArray[np.int64]:
    """Code of every config of a pool, shape ``[len(pool)]``, all different."""
    return config_codes(pool.parameters, pool.columns)


def find_codes(codes: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index into ``codes`` (all different) of every wanted code, -1 where it is not there; shape of ``wanted``."""
    if not len(codes):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(codes)
    at = np.clip(np.searchsorted(codes, wanted, sorter=order), 0, len(codes) - 1)
    found: NDArray[np.int64] = order[at]
    return np.where(codes[found] == wanted, found, -1)


def align(
    codes: Sequence[NDArray[np.int64]], values: Sequence[NDArray[np.float64]], missing: float = np.nan
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Values of several pools, side by side.

    Args:
        codes: of each pool, all different, ``[n_configs]``.
        values: likewise.
        missing: stands where a pool lacks a config.

    Returns:
        The codes that any pool has, ascending, ``[n_codes]``, and the values, ``[n_pools, n_codes]``.
    """
    every = np.unique(np.concatenate(codes))
    aligned = np.full((len(codes), len(every)), missing)
    for row, own, value in zip(aligned, codes, values, strict=True):
        row[np.searchsorted(every, own)] = value
    return every, aligned


def space_fingerprint(spec: KernelSpec) -> str:
    """SHA-256 of everything that gives a code or an encoded coordinate its meaning, and of the rules' reasons."""
    parameters = [
        [p.name, [repr(value) for value in p.values], p.kind, p.launch, repr(p.neutral), p.active is not None]
        for p in spec.space.parameters
    ]
    text = json.dumps([spec.name, list(spec.shape_keys), parameters, [rule.reason for rule in spec.space.rules]])
    return hashlib.sha256(text.encode()).hexdigest()
