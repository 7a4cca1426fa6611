"""The timer's queueing, on a simulated GPU: one clock for the CPU, one queue of commands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from bo_tuner.evaluators import timing
from bo_tuner.evaluators.timing import Timer

COMMAND_US, LAUNCH_US, FLUSH_US = 3.0, 40.0, 50.0
CAPACITY = 1000  # of the driver's queue: one command more waits for the GPU


class SimulatedGpu:
    """Times in µs. A command takes the CPU some time to queue, and the GPU its own once all before it are done."""

    def __init__(self) -> None:
        self.cpu_us = self.done_us = 0.0
        self.queue: deque[float] = deque()
        self.hiccups: dict[int, float] = {}
        self.n_launches, self.slept_us = 0, []

    def command(self, gpu_us: float, cpu_us: float = COMMAND_US) -> float:
        self.cpu_us += cpu_us
        while self.queue and (self.queue[0] <= self.cpu_us or len(self.queue) >= CAPACITY):
            self.cpu_us = max(self.cpu_us, self.queue.popleft())
        self.done_us = max(self.done_us, self.cpu_us) + gpu_us
        self.queue.append(self.done_us)
        return self.done_us

    def kernel(self, gpu_us: float) -> Callable[[], None]:
        def launch() -> None:
            self.n_launches += 1
            self.command(gpu_us, LAUNCH_US + self.hiccups.get(self.n_launches, 0.0))

        return launch

    def sleep(self, cycles: int) -> None:
        self.slept_us.append(cycles / 2000)
        self.command(cycles / 2000)

    def synchronize(self) -> None:
        self.cpu_us = max(self.cpu_us, self.done_us)

    def event(self, **_: object) -> SimulatedEvent:
        return SimulatedEvent(self)


class SimulatedEvent:
    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu, self.at_us = gpu, 0.0

    def record(self) -> None:
        self.at_us = self._gpu.command(0.0)

    def query(self) -> bool:
        return self.at_us <= self._gpu.cpu_us

    def synchronize(self) -> None:
        self._gpu.cpu_us = max(self._gpu.cpu_us, self.at_us)

    def elapsed_time(self, end: SimulatedEvent) -> float:
        return (end.at_us - self.at_us) / 1e3


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimulatedGpu:
    simulated = SimulatedGpu()
    cuda = SimpleNamespace(_sleep=simulated.sleep, Event=simulated.event, synchronize=simulated.synchronize)
    flush = SimpleNamespace(zero_=lambda: simulated.command(FLUSH_US))
    torch = SimpleNamespace(cuda=cuda, empty=lambda *_, **__: flush, int32=None)
    monkeypatch.setattr(timing, "torch", torch)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: simulated.cpu_us * 1e-6))
    return simulated


def test_readings_are_the_kernels_times_in_the_order_given(gpu: SimulatedGpu) -> None:
    times = [8.0 + i % 37 for i in range(1000)]
    assert Timer().read([gpu.kernel(us) for us in times]) == pytest.approx(times)


def test_what_comes_before_and_after_a_call_is_not_timed(gpu: SimulatedGpu) -> None:
    seen: list[tuple[str, int]] = []

    def queued(word: str, n_commands: int) -> Callable[[int], None]:
        def queue(position: int) -> None:
            seen.append((word, position))
            for _ in range(n_commands):
                gpu.command(20.0)

        return queue

    times = [10.0 + i for i in range(200)]
    readings = Timer().read([gpu.kernel(us) for us in times], queued("before", 2), queued("after", 5))
    assert readings == pytest.approx(times)
    assert seen[:4] == [("before", 0), ("after", 0), ("before", 1), ("after", 1)]


def test_a_batch_that_the_cpu_was_late_for_is_read_again(gpu: SimulatedGpu) -> None:
    gpu.hiccups = {3: 60_000.0, 450: 90_000.0, 460: 200_000.0}
    times = [8.0 + i % 5 for i in range(700)]
    timer = Timer()
    assert timer.read([gpu.kernel(us) for us in times]) == pytest.approx(times)
    assert timer.n_late > 0
    assert timer.n_readings == len(times)


def test_long_kernels_after_short_ones_are_read_right(gpu: SimulatedGpu) -> None:
    times = [5000.0] * 150 + [6.0] * 300 + [5000.0] * 150
    assert Timer().read([gpu.kernel(us) for us in times]) == pytest.approx(times)


def test_the_gpu_hardly_waits(gpu: SimulatedGpu) -> None:
    timer = Timer()
    timer.read([gpu.kernel(60.0)] * 300)
    start_us = gpu.cpu_us
    timer.read([gpu.kernel(60.0)] * 3000)
    assert gpu.cpu_us - start_us < 1.35 * 3000 * (60.0 + FLUSH_US)


def test_delays_do_not_grow_without_end(gpu: SimulatedGpu) -> None:
    timer = Timer()
    for _ in range(20):
        timer.read([gpu.kernel(7.0)] * 400, before=lambda _: gpu.command(2.0), after=lambda _: gpu.command(2.0))
    assert timer.n_late < 5
    assert max(gpu.slept_us[-20:]) < 20_000


def test_no_calls_give_no_readings(gpu: SimulatedGpu) -> None:
    assert Timer().read([]) == []
