"""A stand-in for ``LiveEvaluator`` that answers from a toy table, so that the live path runs without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.space import Config, config_key
from bo_tuner.task import Task
from tests.toy_prior import target


class FakeGpu:
    """The same surface as ``LiveEvaluator``."""

    def __init__(self, n_sms: int | None = None) -> None:
        self.table = target()
        self.device = self.table.task.device if n_sms is None else self.table.task.device.with_sms(n_sms)
        self.baselines_us = {"memcpy": 12.5}

    def prefetch(self, configs: Sequence[Config]) -> None:
        assert len(configs) == len({config_key(config) for config in configs})

    def open(self, task: Task) -> ReplayEvaluator:
        assert task == self.table.task
        return ReplayEvaluator(self.table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
