"""Measurements that outlive the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from bo_tuner.evaluators.journal import JournalEvaluator
from bo_tuner.space import Config
from bo_tuner.study import Measurement, Status

RUN: dict[str, str | int] = {"task": "t", "seed": 0}


class Counting:
    """Measures the value of ``x``; a config with ``fail`` fails."""

    def __init__(self) -> None:
        self.asked: list[Config] = []

    def evaluate(self, config: Config) -> Measurement:
        self.asked.append(config)
        if config.get("fail"):
            return Measurement(Status.COMPILE, message="no", compile_s=1.5)
        return Measurement(Status.CORRECT, (float(config["x"]), 2.0))


def _configs(n: int) -> list[Config]:
    return [{"x": x + 1, "loader": "tma", **({"fail": True} if x == 1 else {})} for x in range(n)]


def _write(path: Path, n: int) -> list[Measurement]:
    journal = JournalEvaluator(Counting(), path, RUN)
    return [journal.evaluate(config) for config in _configs(n)]


def test_an_earlier_run_answers_first(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.jsonl"
    earlier = _write(path, 3)
    inner = Counting()
    journal = JournalEvaluator(inner, path, RUN)
    assert journal.n_resumed == 3
    assert [journal.evaluate(config) for config in _configs(5)][:3] == earlier
    assert inner.asked == _configs(5)[3:]
    assert JournalEvaluator(Counting(), path, RUN).n_resumed == 5


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, 3)
    path.write_bytes(path.read_bytes()[:-cut])
    inner = Counting()
    journal = JournalEvaluator(inner, path, RUN)
    for config in _configs(3):
        journal.evaluate(config)
    assert len(inner.asked) <= 1
    assert JournalEvaluator(Counting(), path, RUN).n_resumed == 3


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"[]\n", b'{"task": "another"}\n{}\n'])
def test_a_foreign_journal_is_started_anew(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "journal.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert JournalEvaluator(Counting(), path, RUN).n_resumed == 0
    assert _write(path, 1)
    assert JournalEvaluator(Counting(), path, RUN).n_resumed == 1


def test_a_search_that_takes_another_way_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, 3)
    inner = Counting()
    journal = JournalEvaluator(inner, path, RUN)
    first, *_ = _configs(1)
    journal.evaluate(first)
    journal.evaluate({"x": 9, "loader": "pointer"})
    assert inner.asked == [{"x": 9, "loader": "pointer"}]


def test_a_finished_run_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JournalEvaluator(Counting(), path, RUN)
    journal.evaluate({"x": 1})
    journal.finish()
    assert not path.exists()
