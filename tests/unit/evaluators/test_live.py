"""The live evaluator around a worker and a pool that make things up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bo_tuner.errors import UserError
from bo_tuner.evaluators import live
from bo_tuner.evaluators.compiling import CompileResult
from bo_tuner.evaluators.exhaustive import Row
from bo_tuner.evaluators.live import LiveEvaluator
from bo_tuner.evaluators.worker import WorkerDied
from bo_tuner.kernels import load_kernel
from bo_tuner.space import Config
from bo_tuner.study import Status
from bo_tuner.task import Task, device_named

SPEC = load_kernel("gemm")
TASK = SPEC.task({"M": 64, "N": 64, "K": 64}, device_named("nvidia_h200"))
CONFIG = SPEC.pool(TASK).config(0)


class MadeUpWorker:
    device = TASK.device

    def __init__(self, n_sms: int | None) -> None:
        self.calls = 0

    def time_some(
        self, task: Task, configs: Sequence[Config], n_readings: int
    ) -> tuple[list[Row], dict[str, list[float]]]:
        self.calls += 1
        if configs[0].get("dies"):
            raise WorkerDied([0], "no sign of life for 60 s")
        if configs[0].get("wrong"):
            return [Row(Status.CORRECTNESS, message="relative error 1 is over 0.01")], {"library": [9.0]}
        return [Row(Status.CORRECT, [5.0] * n_readings)], {"library": [float(self.calls)] * n_readings}

    def close(self) -> None: ...


class MadeUpPool:
    def compile(self, jobs: Sequence[tuple[Task, Config]]) -> list[CompileResult]:
        if jobs[0][1].get("refused"):
            return [CompileResult(Status.COMPILE, 0.5, "no")]
        return [CompileResult(Status.CORRECT, 1.5)]

    def close(self) -> None: ...


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> LiveEvaluator:
    monkeypatch.setattr(live, "gpu_is_there", lambda: True)
    monkeypatch.setattr(live, "GpuWorker", MadeUpWorker)
    monkeypatch.setattr(live, "CompilePool", MadeUpPool)
    return LiveEvaluator().open(TASK)


def test_a_trial_has_its_readings_and_compile_time_apart(gpu: LiveEvaluator) -> None:
    measurement = gpu.evaluate(CONFIG)
    assert measurement.status is Status.CORRECT
    assert len(measurement.readings_us) == live.N_READINGS
    assert measurement.compile_s == 1.5
    assert gpu.evaluate(CONFIG).compile_s == 0.0


def test_a_trial_waits_for_what_is_compiled_ahead(gpu: LiveEvaluator) -> None:
    gpu.prefetch([CONFIG, SPEC.pool(TASK).config(1)])
    assert gpu.evaluate(CONFIG).compile_s == 1.5


@pytest.mark.parametrize(
    ("config", "status"),
    [({"refused": True}, Status.COMPILE), ({"dies": True}, Status.RUNTIME), ({"wrong": True}, Status.CORRECTNESS)],
)
def test_what_goes_wrong_is_a_status(gpu: LiveEvaluator, config: Config, status: Status) -> None:
    measurement = gpu.evaluate({**CONFIG, **config})
    assert measurement.status is status
    assert measurement.message


def test_the_library_is_judged_by_its_typical_time(gpu: LiveEvaluator) -> None:
    for _ in range(5):
        gpu.evaluate(CONFIG)
    assert gpu.baselines_us == {"library": 3.0}


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "gpu_is_there", lambda: False)
    with pytest.raises(UserError, match="--replay"):
        LiveEvaluator()
