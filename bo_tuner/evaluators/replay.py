"""Tuning without a GPU: trials are answered from a recorded table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec, Shape
from bo_tuner.space import Config, Value
from bo_tuner.storage.tables import TaskTable
from bo_tuner.study import Measurement, Status


class ReplayEvaluator:
    """Answers with the recorded screening reading of a config: a real reading, its noise included.

    A table holds one such reading a config, so a repeated trial sees it again. The compile time is the recorded one
    the first time that a compiled kernel is needed, then 0: configs that differ in launch parameters share a kernel.

    Args:
        table: the recorded task.
    """

    def __init__(self, table: TaskTable) -> None:
        self.table = table
        self._compiled: set[tuple[tuple[str, Value], ...]] = set()

    def evaluate(self, config: Config) -> Measurement:
        """Look a config up.

        Raises:
            UserError: the table's pool does not have it.
        """
        pool = self.table.pool
        row = pool.index(config)
        compiled = tuple((p.name, config[p.name]) for p in pool.parameters if not p.launch and p.name in config)
        compile_s = 0.0 if compiled in self._compiled else float(self.table.compile_s[row])
        self._compiled.add(compiled)
        status = Status(str(self.table.status[row]))
        if status is not Status.CORRECT:
            return Measurement(status, compile_s=compile_s, message="recorded failure")
        return Measurement(status, (float(self.table.reading_us[row]),), compile_s)


def table_of_shape(spec: KernelSpec, tables: Sequence[TaskTable], shape: Shape) -> TaskTable:
    """The table of a shape.

    Raises:
        UserError: it was not recorded; the message lists the three nearest recorded shapes (Euclidean distance of
            the logarithms of the dimensions).
    """
    if not tables:
        raise UserError(f"shape: no table of {spec.name} is loaded")
    task = spec.task(shape, tables[0].task.device)
    for table in tables:
        if table.task == task:
            return table

    def distance(table: TaskTable) -> float:
        return math.dist(*([math.log(shape_[key]) for key in spec.shape_keys] for shape_ in (shape, table.task.shape)))

    nearest = sorted(tables, key=lambda table: (distance(table), table.task.key))[:3]
    listed = ", ".join(table.task.shape_key for table in nearest)
    raise UserError(f"shape: {task.shape_key} was not recorded on {task.device.name}; the nearest are {listed}")
