"""A third kernel, as a user would add it: this spec file and ``third_kernel_program.py``, nothing else touched.

Softmax over the rows of a BF16 matrix.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec, Shape
from bo_tuner.space import Columns, Config, Pool, Rule, SearchSpace, power_of_two
from bo_tuner.task import Task


class SoftmaxSpec(KernelSpec):
    """Each program takes ``rows_at_once`` rows and walks over them in blocks of ``block`` columns."""

    name: ClassVar[str] = "softmax"
    shape_keys: ClassVar[tuple[str, ...]] = ("rows", "cols")
    program_module: ClassVar[str] = "tests.third_kernel_program"
    space: ClassVar[SearchSpace] = SearchSpace(
        (power_of_two("rows_at_once", 1, 16), power_of_two("block", 64, 1024), power_of_two("num_warps", 1, 8)),
        (
            Rule(
                "less than one element a thread",
                lambda c, _: c["rows_at_once"] * c["block"] < 32 * c["num_warps"],
            ),
        ),
    )

    def check_shape(self, shape: Shape) -> None:
        if shape["cols"] % 8:
            raise UserError(f"cols: {shape['cols']} is not a multiple of 8")

    def flops(self, shape: Shape) -> float:
        return 5.0 * shape["rows"] * shape["cols"]

    def min_bytes(self, shape: Shape) -> float:
        return 4.0 * shape["rows"] * shape["cols"]

    def shared_bytes(self, columns: Columns, task: Task) -> NDArray[np.int64]:
        return np.asarray(4 * columns["rows_at_once"] * columns["num_warps"], dtype=np.int64)

    def features(self, pool: Pool) -> dict[str, NDArray[np.float64]]:
        blocks = pool.task.shape["rows"] / pool.columns["rows_at_once"]
        return {"log2_waves": np.log2(blocks / pool.task.device.n_sms)}

    def draw_shape(self, rng: np.random.Generator) -> dict[str, int]:
        return {"rows": int(rng.integers(1, 8193)), "cols": 8 * int(rng.integers(1, 2049))}

    def default_config(self, task: Task) -> Config:
        return {"rows_at_once": 1, "block": 1024, "num_warps": 4}
