"""The design matrix of the prior mean: physical features, encoded parameters and, if wished, what the compiler says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bo_tuner.kernels.occupancy import blocks_per_sm
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import Pool
from bo_tuner.storage.compiled import CompiledFacts

#: Prefix of the encoded parameters, so that they never clash with a feature of the spec.
PARAMETER_PREFIX = "parameter_"
#: Prefix of the features that the compiler gives.
COMPILED_PREFIX = "compiled_"
_MAX_REGISTERS = 255

Floats = NDArray[np.float64]


def design_matrix(spec: KernelSpec, pool: Pool, compiled: CompiledFacts | None = None) -> tuple[list[str], Floats]:
    """Names and values of the inputs of the prior mean, shapes ``[d]`` and ``[len(pool), d]``.

    Args:
        spec: the kernel.
        pool: the configs.
        compiled: adds what these facts say of each config.

    Raises:
        ValueError: the spec returned a feature of another length or with a value that is not finite.
        UserError: the facts lack a config.
    """
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in spec.features(pool).items()}
    for at, parameter in enumerate(pool.parameters):
        columns[PARAMETER_PREFIX + parameter.name] = pool.encoded[:, at]
    if compiled is not None:
        columns |= {COMPILED_PREFIX + name: values for name, values in _compiled(spec, pool, compiled).items()}
    for name, values in columns.items():
        if values.shape != (len(pool),) or not np.all(np.isfinite(values)):
            raise ValueError(f"feature {name} of {spec.name} must be {len(pool)} finite numbers")
    return list(columns), np.column_stack(list(columns.values()))


def _compiled(spec: KernelSpec, pool: Pool, compiled: CompiledFacts) -> dict[str, Floats]:
    """As ratios to the device, like all physical features; a build that the compiler refused has no registers."""
    device, facts, warps = pool.task.device, compiled.of_pool(pool), spec.warps(pool.columns)
    resident = blocks_per_sm(device, facts["shared_bytes"], warps, facts["n_registers"])
    return {
        "registers_share": facts["n_registers"] / _MAX_REGISTERS,
        "log2_stack_bytes": np.log2(1.0 + facts["stack_bytes"]),
        "shared_share": facts["shared_bytes"] / device.shared_per_block_bytes,
        "resident_blocks": resident,
        "resident_warps": resident * warps,
        "fails": (facts["n_registers"] == 0).astype(np.float64),
    }
