"""The killable process: one config that kills or hangs it costs that config and nothing else."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection

import pytest

from bo_tuner.errors import UserError
from bo_tuner.evaluators import worker
from bo_tuner.evaluators.exhaustive import Row
from bo_tuner.evaluators.worker import GpuWorker
from bo_tuner.study import Status
from bo_tuner.task import Task, device_named

H200 = device_named("nvidia_h200")
TASK = Task("gemm", {"M": 1, "N": 32, "K": 32}, H200)


def _stand_in(pipe: Connection, n_sms: int | None, parent: int) -> None:
    """Answers like the real child; config {"do": word} says what happens."""
    while True:
        method, _, args = pipe.recv()
        if method == "describe":
            pipe.send(("result", (H200, {"timing": {}, "software": {}})))
            continue
        _, configs, alone, dead = args
        batches = [[i] for i in sorted(alone - dead)]
        batches.append([i for i in range(len(configs)) if i not in alone | dead])
        for batch in batches:
            pipe.send(("alive", batch))
            for position in batch:
                word = configs[position]["do"]
                if word == "die":
                    os._exit(1)
                if word == "hang":
                    time.sleep(600)
                if word == "poison":
                    pipe.send(("poisoned", "illegal memory access"))
                    return
                if word == "refuse":
                    pipe.send(("error", UserError("GPU: out of memory")))
        pipe.send(("result", ([Row(Status.CORRECT, [1.0]) for _ in configs], [], {})))


@pytest.mark.parametrize("word", ["die", "hang", "poison"])
def test_a_killer_is_found_and_the_rest_is_timed(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SILENCE_S", 3.0)
    gpu = GpuWorker(serve=_stand_in)
    try:
        rows, _, _ = gpu.time_all(TASK, [{"do": "work"}, {"do": word}, {"do": "work"}])
    finally:
        gpu.close()
    assert [row.status for row in rows] == [Status.CORRECT, Status.RUNTIME, Status.CORRECT]
    assert rows[1].message


def test_a_user_error_in_the_child_is_raised_in_the_parent() -> None:
    gpu = GpuWorker(serve=_stand_in)
    try:
        with pytest.raises(UserError, match="out of memory"):
            gpu.time_all(TASK, [{"do": "refuse"}])
    finally:
        gpu.close()


def _dies_at_once(pipe: Connection, n_sms: int | None, parent: int) -> None:
    os._exit(1)


def test_a_child_that_cannot_start_is_an_error_not_a_loop() -> None:
    with pytest.raises(UserError, match="GPU: cannot be used"):
        _ = GpuWorker(serve=_dies_at_once).device
