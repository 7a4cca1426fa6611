"""Timing on a GPU: one policy for trials, tables and baselines.

What is timed is the kernel on the GPU, with a cold L2. Three things would spoil that and are kept out:

* a launch from Python takes the CPU longer than a short kernel takes the GPU, so a batch is queued behind a delay on
  the GPU that outlasts the queueing; a batch for which the delay ended too early is timed again behind a longer one;
* what the call before left in the L2 cache, so the cache is overwritten before every reading;
* drift of clocks and heat, so whatever will be compared is handed in together and read in the order given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: Overwritten before every reading; three times the L2 of an H200, in bytes.
FLUSH_BYTES = 192 * 2**20
#: Readings queued behind one delay. The driver's queue holds about a thousand commands, of which a reading takes four.
_BATCH = 128
_CYCLES_PER_US = 2000

POLICY = {
    "clock": "CUDA events around one launch, queued behind a delay on the GPU",
    "l2": f"cold: {FLUSH_BYTES // 2**20} MiB written before every reading",
    "inputs": "standard normal, BF16",
}


class Timer:
    """Reads GPU times in microseconds on the current stream."""

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self._events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(_BATCH)
        ]
        self._queueing_us = 200.0

    def read(
        self,
        calls: Sequence[Callable[[], object]],
        before: Callable[[int], object] | None = None,
        after: Callable[[int], object] | None = None,
    ) -> list[float]:
        """One reading in microseconds of each call, in the order given.

        Args:
            calls: what to time; each queues its work on the current stream and returns without waiting.
            before: queued before each call's cache flush with the call's position, not timed.
            after: queued after each call with its position, not timed.
        """
        readings: list[float] = []
        for first in range(0, len(calls), _BATCH):
            batch = range(first, min(first + _BATCH, len(calls)))
            for _ in range(3):
                times, in_time = self._read_batch(calls, batch, before, after)
                if in_time:
                    break
            readings += times
        return readings

    def _read_batch(self, calls: Any, batch: range, before: Any, after: Any) -> tuple[list[float], bool]:
        delayed = torch.cuda.Event()
        torch.cuda._sleep(int(self._queueing_us * len(batch) * _CYCLES_PER_US))
        delayed.record()
        start = time.perf_counter()
        for position, (begin, end) in zip(batch, self._events, strict=False):
            if before is not None:
                before(position)
            self._flush.zero_()
            begin.record()
            calls[position]()
            end.record()
            if after is not None:
                after(position)
        queueing_us = (time.perf_counter() - start) * 1e6 / len(batch)
        in_time = not delayed.query()
        torch.cuda.synchronize()
        # Follow what queueing takes here, with a margin; a late batch shows that the margin was too small.
        self._queueing_us = max(1.3 * queueing_us, 0.9 * self._queueing_us) * (1.0 if in_time else 1.5)
        times = [begin.elapsed_time(end) * 1e3 for _, (begin, end) in zip(batch, self._events, strict=False)]
        return times, in_time
