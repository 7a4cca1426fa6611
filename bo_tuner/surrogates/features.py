"""The design matrix of the prior mean: the kernel's physical features and the encoded parameters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import Pool

#: Prefix of the encoded parameters, so that they never clash with a feature of the spec.
PARAMETER_PREFIX = "parameter_"


def design_matrix(spec: KernelSpec, pool: Pool) -> tuple[list[str], NDArray[np.float64]]:
    """Names and values of the inputs of the prior mean, shapes ``[d]`` and ``[len(pool), d]``.

    Raises:
        ValueError: the spec returned a feature of another length or with a value that is not finite.
    """
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in spec.features(pool).items()}
    for at, parameter in enumerate(pool.parameters):
        columns[PARAMETER_PREFIX + parameter.name] = pool.encoded[:, at]
    for name, values in columns.items():
        if values.shape != (len(pool),) or not np.all(np.isfinite(values)):
            raise ValueError(f"feature {name} of {spec.name} must be {len(pool)} finite numbers")
    return list(columns), np.column_stack(list(columns.values()))
