"""Record the ground truth: time every valid config of sampled shapes on this machine's GPUs.

Three things go on at once, so that no GPU waits: one thread has the tasks compiled in their order, one thread a GPU
times what is compiled, and one thread writes what is timed.

One finished task is one atomically written part file; a killed run loses at most the tasks that are being timed or
written and goes on where it stopped. When all shapes of a split are there, the parts become
``<out>/<kernel>/<device>/<split>.parquet``.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from bo_tuner.book import Book, Draw, Timed, without_measured_facts
from bo_tuner.errors import UserError
from bo_tuner.evaluators.compiling import CompilePool, CompileResult
from bo_tuner.evaluators.worker import GpuWorker, WorkerDied
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.study import Status
from bo_tuner.task import Device, Task

__all__ = ["Draw", "Listener", "Silent", "collect"]


#: Times in a row that a timing process may die before its GPU is given up.
_MOST_DEATHS = 2


class Listener(Protocol):
    """Hears how a collection goes on, one call at a time, from any thread."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins."""

    def step(self, note: str) -> None:
        """One step of the stage is done."""


class Silent:
    """A listener that says nothing."""

    def stage(self, name: str, total: int) -> None: ...

    def step(self, note: str) -> None: ...


class _OneAtATime:
    """Lets several threads talk to one listener."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._lock = listener, threading.Lock()

    def stage(self, name: str, total: int) -> None:
        with self._lock:
            self._listener.stage(name, total)

    def step(self, note: str) -> None:
        with self._lock:
            self._listener.step(note)


def collect(
    spec: KernelSpec,
    draws: Sequence[Draw],
    out: Path,
    n_sms: int | None = None,
    listener: Listener | None = None,
    n_gpus: int = 1,
) -> list[Path]:
    """Record the shapes of some draws, the draws taking turns so that a stop leaves a share of each.

    Args:
        spec: the kernel.
        draws: what to record.
        out: folder of the tables.
        n_sms: use only so many multiprocessors of each GPU.
        listener: hears the progress.
        n_gpus: time on the first so many GPUs, each task on one of them.

    Returns:
        the table files, one a draw.

    Raises:
        UserError: a GPU is missing, cannot be parted so or differs from the first; what is there already is of another
            kernel source, space or device; or a part cannot be written.
    """
    n_compilers = max(1, (os.cpu_count() or 1) - 1 - 2 * n_gpus)  # timing must not wait for a core
    with ExitStack() as stack:  # left from the bottom up, so what is timed is written and nothing is left running
        writer = stack.enter_context(ThreadPoolExecutor(1))
        compilers = stack.enter_context(closing(CompilePool(n_compilers)))
        threads = stack.enter_context(ThreadPoolExecutor(n_gpus + 1))
        workers = [stack.enter_context(closing(GpuWorker(n_sms, gpu))) for gpu in range(n_gpus)]
        _check_equal([worker.device for worker in workers])
        books = [Book(spec, draw, out, workers[0].device, workers[0].versions) for draw in draws]
        todo = [(book, task) for turn in _take_turns([book.missing() for book in books]) for book, task in turn]
        recording = _Recording(spec, todo, _OneAtATime(listener or Silent()))
        stack.callback(recording.stopped.set)
        running = [threads.submit(recording.time, worker, writer) for worker in workers]
        running.append(threads.submit(recording.compile, compilers, n_gpus))
        for ended in as_completed(running):
            ended.result()  # the first error ends the run
        recording.say_what_is_missing()
        return [book.merge() for book in books]


def _check_equal(devices: Sequence[Device]) -> None:
    """Refuse GPUs that differ, since a table is of one device."""
    for gpu, device in enumerate(devices):
        if without_measured_facts(device) != without_measured_facts(devices[0]):
            raise UserError(f"gpus: GPU 0 is {devices[0].name} and GPU {gpu} is {device.name}, which are not equal")


def _take_turns(queues: Sequence[Sequence[Any]]) -> list[list[Any]]:
    longest = max((len(queue) for queue in queues), default=0)
    return [[queue[turn] for queue in queues if turn < len(queue)] for turn in range(longest)]


class _Recording:
    """The tasks on their way from the compilers through the GPUs to the writer.

    Compiling is told to the listener until the first task can be timed, from then on timing.
    """

    def __init__(self, spec: KernelSpec, todo: Sequence[tuple[Book, Task]], listener: Listener) -> None:
        self._spec, self._todo, self._listener = spec, todo, listener
        self._compiled: SimpleQueue[tuple[Book, Task, list[CompileResult]] | None] = SimpleQueue()
        self._again: deque[tuple[Book, Task, list[CompileResult]]] = deque()
        self._timing = False
        self._n_written = 0
        self.stopped = threading.Event()

    def compile(self, compilers: CompilePool, n_gpus: int) -> None:
        """Compile the tasks in their order; the pool compiles what several of them need once.

        Raises:
            CancelledError: the run was stopped.
        """
        try:
            for book, task in self._todo:
                self._check_stop()
                pool = self._spec.pool(task)
                rows, places = pool.builds
                if not self._timing:
                    self._listener.stage("compiling", len(rows))
                compiled = compilers.compile([(task, pool.config(row)) for row in rows], self._hear)
                results = [compiled[place] for place in places]
                if not self._timing:
                    self._timing = True
                    self._listener.stage("timing", len(self._todo))
                self._compiled.put((book, task, results))
        finally:
            for _ in range(n_gpus):
                self._compiled.put(None)

    def say_what_is_missing(self) -> None:
        """Tell how many tasks were left out, if any were, once the GPUs are done."""
        if n := len(self._todo) - self._n_written:
            self._listener.step(f"{n} shapes were left out; the same command again tries them again")

    def _hear(self, result: CompileResult) -> None:
        self._check_stop()
        if not self._timing:
            self._listener.step(result.status.value)

    def _check_stop(self) -> None:
        if self.stopped.is_set():
            raise CancelledError

    def time(self, worker: GpuWorker, writer: Executor) -> None:
        """Time compiled tasks on one GPU until none is left; of those timed, at most one waits to be written.

        Raises:
            UserError: the GPU cannot be used, or a part cannot be written (raised when the next task is timed).
        """
        written: Future[None] | None = None
        n_deaths = 0  # in a row
        for book, task, builds in self._items():
            pairs = zip(self._spec.pool(task), builds, strict=True)
            configs = [config for config, build in pairs if build.status is Status.CORRECT]
            start = time.perf_counter()
            try:
                timed = worker.time_all(task, configs)
            except WorkerDied as death:
                if self.stopped.is_set():
                    return
                n_deaths += 1
                if n_deaths == _MOST_DEATHS:  # not the tasks' fault: the other GPUs shall have this one
                    self._again.append((book, task, builds))
                    self._listener.step(f"a GPU is given up: {death}")
                    break
                self._listener.step(f"{task.shape_key}: left out, {death}")
                continue
            n_deaths = 0
            seconds = time.perf_counter() - start
            if written is not None:
                written.result()
            written = writer.submit(self._write, book, task, builds, timed, seconds)
        if written is not None:
            written.result()

    def _items(self) -> Iterator[tuple[Book, Task, list[CompileResult]]]:
        """What is compiled, then what other GPUs gave back."""
        yield from iter(self._compiled.get, None)
        while self._again:
            yield self._again.popleft()

    def _write(self, book: Book, task: Task, builds: Sequence[CompileResult], timed: Timed, seconds: float) -> None:
        note = book.write(task, builds, timed, seconds)
        self._n_written += 1
        self._listener.step(note)
