"""Timing on a GPU: one policy for trials, tables and baselines.

What is timed is the kernel on the GPU, with a cold L2. Three things would spoil that and are kept out:

* a launch from Python takes the CPU longer than a short kernel takes the GPU, so a batch is queued behind a delay on
  the GPU that outlasts the queueing; a batch for which the delay ended too early is timed again behind a longer one,
  five times at most;
* what the call before left in the L2 cache, so the cache is overwritten before every reading;
* drift of clocks and heat, so whatever will be compared is handed in together and read in the order given.

The next batch is queued while the GPU works on the one before it, so the GPU hardly waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

#: Overwritten before every reading; three times the L2 of an H200, in bytes.
FLUSH_BYTES = 192 * 2**20
#: Commands that two batches may hold. At about a thousand the driver's queue is full, and queueing waits for the GPU.
_QUEUE = 880
#: Commands of a reading, and at most so many more for what goes before and after it.
_COMMANDS, _MORE_BEFORE, _MORE_AFTER = 4, 2, 5
_CYCLES_PER_US = 2000
_LONGEST_DELAY_US = 1e5

POLICY = {
    "clock": "CUDA events around one launch, queued behind a delay on the GPU",
    "l2": f"cold: {FLUSH_BYTES // 2**20} MiB written before every reading",
    "inputs": "standard normal, BF16",
}


@dataclass
class _Queued:
    """A batch on its way through the GPU."""

    positions: range
    events: list[tuple[Any, Any]]
    delay_ended: Any
    in_time: bool


class Timer:
    """Reads GPU times in microseconds on the current stream."""

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self._spare: list[tuple[Any, Any]] = []
        self._queueing_us = 150.0  # a reading, as measured so far
        self.n_readings, self.n_late = 0, 0

    def read(
        self,
        calls: Sequence[Callable[[], object]],
        before: Callable[[int], object] | None = None,
        after: Callable[[int], object] | None = None,
    ) -> list[float]:
        """One reading in microseconds of each call, in the order given.

        Args:
            calls: what to time; each queues its work on the current stream and returns without waiting.
            before: queued before each call's cache flush with the call's position, not timed; at most two commands.
            after: queued after each call with its position, not timed; at most five commands.
        """
        n_commands = _COMMANDS + (_MORE_BEFORE if before else 0) + (_MORE_AFTER if after else 0)
        size = _QUEUE // (2 * n_commands)
        readings: list[float] = []
        running_us, ahead = 0.0, None
        for first in range(0, len(calls), size):
            positions = range(first, min(first + size, len(calls)))
            queued = self._queue(calls, positions, before, after, 0.7 * running_us)
            if ahead is not None:
                times, running_us = self._wait(ahead, calls, before, after)
                readings += times
            ahead = queued
        return readings + self._wait(ahead, calls, before, after)[0] if ahead is not None else readings

    def _queue(self, calls: Any, positions: range, before: Any, after: Any, running_us: float) -> _Queued:
        """Queue a batch; the GPU has at least ``running_us`` of other work to do first."""
        events = [self._spare.pop() if self._spare else _event_pair() for _ in positions]
        delay_us = min(max(1.3 * self._queueing_us * len(positions) - running_us, 20.0), _LONGEST_DELAY_US)
        torch.cuda._sleep(int(delay_us * _CYCLES_PER_US))
        delay_ended = torch.cuda.Event()
        delay_ended.record()
        start = time.perf_counter()
        for position, (begin, end) in zip(positions, events, strict=True):
            if before is not None:
                before(position)
            self._flush.zero_()
            begin.record()
            calls[position]()
            end.record()
            if after is not None:
                after(position)
        queueing_us = (time.perf_counter() - start) * 1e6 / len(positions)
        self._queueing_us = max(queueing_us, 0.9 * self._queueing_us)
        return _Queued(positions, events, delay_ended, in_time=not delay_ended.query())

    def _wait(self, batch: _Queued, calls: Any, before: Any, after: Any) -> tuple[list[float], float]:
        """Readings of a batch, and the GPU time that it took in all; one that was late is queued again by itself."""
        for _ in range(5):
            if batch.in_time:
                break
            torch.cuda.synchronize()
            self._spare += batch.events
            self.n_late += 1
            batch = self._queue(calls, batch.positions, before, after, running_us=0.0)
        batch.events[-1][1].synchronize()
        times = [begin.elapsed_time(end) * 1e3 for begin, end in batch.events]
        whole_us = batch.events[0][0].elapsed_time(batch.events[-1][1]) * 1e3
        self._spare += batch.events
        self.n_readings += len(times)
        return times, whole_us


def _event_pair() -> tuple[Any, Any]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
