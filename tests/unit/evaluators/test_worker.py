"""The killable process: one config that kills or hangs it costs that config and nothing else."""

from __future__ import annotations

import os
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from bo_tuner.errors import UserError
from bo_tuner.evaluators import worker
from bo_tuner.evaluators.exhaustive import Row
from bo_tuner.evaluators.worker import GpuWorker, WorkerDied
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


def _dies_in_the_middle_of_a_word(pipe: Connection, n_sms: int | None, parent: int) -> None:
    pipe.recv()
    os.write(pipe.fileno(), struct.pack("!i", 100) + b"abc")
    os._exit(1)


@pytest.mark.parametrize("serve", [_dies_at_once, _dies_in_the_middle_of_a_word])
def test_a_child_that_cannot_start_is_an_error_not_a_loop(serve: worker.Serve) -> None:
    with pytest.raises(UserError, match="GPU: cannot be used"):
        _ = GpuWorker(serve=serve).device


def _hangs_and_says_so(pipe: Connection, n_sms: int | None, parent: int) -> None:
    _, _, (_, configs, _, _) = pipe.recv()
    pipe.send(("alive", [0, 1]))
    Path(configs[0]["tell"]).open("w").close()
    time.sleep(600)


def test_a_close_ends_the_call_of_another_thread_and_starts_no_process(tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    os.mkfifo(hung)
    gpu = GpuWorker(serve=_hangs_and_says_so)
    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(gpu.time_all, TASK, [{"tell": str(hung)}, {}])
        assert hung.read_text() == ""  # waits for the process
        gpu.close()
        with pytest.raises(WorkerDied, match="was closed"):
            call.result()
    with pytest.raises(WorkerDied, match="was closed"):
        gpu.time_all(TASK, [{"do": "work"}])


def _tells_what_it_sees(pipe: Connection, n_sms: int | None, parent: int) -> None:
    while True:
        pipe.recv()
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
        pipe.send(("result", (H200, {"timing": {}, "software": {"sees": seen}})))


@pytest.mark.parametrize(
    ("ours", "gpu", "theirs"),
    [(None, None, "all"), (None, 2, "2"), ("5, 3", 1, "3"), ("GPU-8f,GPU-2b", 0, "GPU-8f"), ("5,3", None, "5,3")],
)
def test_the_process_sees_the_one_gpu_that_it_is_given(
    ours: str | None, gpu: int | None, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if ours is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ours)
    worker_of_one = GpuWorker(gpu=gpu, serve=_tells_what_it_sees)
    try:
        assert worker_of_one.versions["software"]["sees"] == theirs
    finally:
        worker_of_one.close()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == ours


@pytest.mark.parametrize("ours", ["0,1", ""])
def test_a_gpu_that_is_hidden_from_this_process_is_refused(ours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ours)
    with pytest.raises(UserError, match="GPU 2: is not there"):
        GpuWorker(gpu=2, serve=_tells_what_it_sees)
