from __future__ import annotations

import pytest

from bo_tuner.errors import UserError
from bo_tuner.evaluators.replay import ReplayEvaluator, table_of_shape
from bo_tuner.study import Status
from tests.toy_prior import SPEC, sources, target


def test_answers_with_the_recorded_reading() -> None:
    table = target()
    evaluator = ReplayEvaluator(table)
    for row in (0, 5, 40):
        measurement = evaluator.evaluate(table.pool.config(row))
        assert measurement.readings_us == (table.reading_us[row],)
        assert measurement.time_us != table.final_us[row]


def test_a_recorded_failure_is_a_status() -> None:
    measurement = ReplayEvaluator(target()).evaluate(target().pool.config(36))
    assert measurement.status is Status.COMPILE
    assert not measurement.readings_us


def test_launch_parameters_compile_nothing() -> None:
    pool = target().pool
    first = pool.config(0)
    evaluator = ReplayEvaluator(target())
    assert evaluator.evaluate(first).compile_s == pytest.approx(0.5)
    assert evaluator.evaluate({**first, "group": 4}).compile_s == 0.0
    assert evaluator.evaluate({**first, "fast": True}).compile_s == pytest.approx(0.5)


def test_unknown_config() -> None:
    with pytest.raises(UserError, match="tile=7"):
        ReplayEvaluator(target()).evaluate({"tile": 7})


def test_table_of_shape() -> None:
    tables = sources()
    assert table_of_shape(SPEC, tables, tables[3].task.shape) is tables[3]
    rows, cols = tables[3].task.shape.values()
    with pytest.raises(UserError) as caught:
        table_of_shape(SPEC, tables, {"rows": rows, "cols": cols + 1})
    listed = str(caught.value).split("the nearest are ")[1].split(", ")
    assert len(listed) == 3
    assert listed[0] == tables[3].task.shape_key
    with pytest.raises(UserError, match="no table"):
        table_of_shape(SPEC, [], {"rows": 1, "cols": 1})
