"""A killable process that owns the GPU.

A config can hang, fault or leave the CUDA context unusable. So everything on the GPU happens in a child process that
can be killed; the parent learns what it was doing from the last sign of life, starts a new one and goes on without it.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from bo_tuner.errors import UserError
from bo_tuner.evaluators.exhaustive import Baseline, Row, first_rows, time_all
from bo_tuner.kernels import load_kernel, module_of
from bo_tuner.space import Config
from bo_tuner.study import Status
from bo_tuner.task import Device, Task

#: Answers calls on a pipe: (pipe, n_sms, process id of the parent).
Serve = Callable[[Connection, int | None, int], None]

#: Seconds without a sign of life after which the process is taken for hung, and how long it may take to start.
SILENCE_S = 60.0
START_S = 300.0


class WorkerDied(RuntimeError):
    """The process died or hung; ``positions`` are the configs that it was working on."""

    def __init__(self, positions: Sequence[int], why: str) -> None:
        super().__init__(why)
        self.positions = list(positions)


class GpuWorker:
    """Parent's side of the timing process, which starts at once and is first waited for by ``device``.

    One thread may call it; ``close`` may come from another.

    Args:
        n_sms: use only so many multiprocessors.
        gpu: index among the GPUs that this process may see; the timing process sees that one alone. None: the first.
        serve: what the process runs; tests put a stand-in here.

    Raises:
        UserError: ``CUDA_VISIBLE_DEVICES`` names no such GPU.
    """

    def __init__(self, n_sms: int | None = None, gpu: int | None = None, serve: Serve | None = None) -> None:
        self._n_sms, self._serve = n_sms, serve or _serve
        self._name = "GPU" if gpu is None else f"GPU {gpu}"
        self._visible = None if gpu is None else _visible(gpu)
        self._process: Any = None
        self._closed = False
        self._lock = threading.Lock()  # of the process: none may start beside a close
        self._start()

    @property
    def device(self) -> Device:
        """The device that the process times on.

        Raises:
            UserError: there is no GPU that works.
        """
        return self._description[0]

    @property
    def versions(self) -> dict[str, dict[str, str]]:
        """Timing policy and versions of the software, see ``GpuSession.versions``."""
        return self._description[1]

    @functools.cached_property
    def _description(self) -> tuple[Device, dict[str, dict[str, str]]]:
        try:
            device, versions = self._call("describe")
        except WorkerDied as death:
            raise UserError(f"{self._name}: cannot be used ({death})") from None
        return device, versions

    def time_all(self, task: Task, configs: Sequence[Config]) -> tuple[list[Row], list[Baseline], dict[str, Any]]:
        """Time every config; one that kills the process is found, recorded as a failure and left out.

        Raises:
            WorkerDied: the process died for no reason that one config explains, or was closed.

        Returns:
            rows in the order of the configs, the baselines, and facts of the run (clocks in MHz, the GPU's identifier).
        """
        alone: set[int] = set()
        dead: set[int] = set()
        while True:
            try:
                rows, baselines, facts = self._call("time_all", task, list(configs), frozenset(alone), frozenset(dead))
            except WorkerDied as death:
                killers = set(death.positions)
                if len(killers) != 1 and killers <= alone:  # each of them ran by itself: nothing more to isolate
                    raise
                dead |= killers if len(killers) == 1 else set()
                alone |= killers
                continue
            for position in dead:
                rows[position] = Row(Status.RUNTIME, message="killed the timing process or hung")
            return rows, baselines, facts

    def time_some(
        self, task: Task, configs: Sequence[Config], n_readings: int
    ) -> tuple[list[Row], dict[str, list[float]]]:
        """Check each config, then read all and the library baselines ``n_readings`` times interleaved.

        Raises:
            WorkerDied: the process died or hung on these configs.
        """
        result: tuple[list[Row], dict[str, list[float]]] = self._call("time_some", task, list(configs), n_readings)
        return result

    def close(self) -> None:
        """End the process for good; a call that another thread is in ends with ``WorkerDied``."""
        self._closed = True
        self._kill()

    def _kill(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.join()
                self._process = None

    def _start(self) -> None:
        with self._lock:
            if self._closed:
                raise WorkerDied([], "the timing process was closed")
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            args = (self._visible, self._serve, theirs, self._n_sms, os.getpid())
            self._process = context.Process(target=_see_and_serve, args=args, daemon=True)
            self._process.start()
            theirs.close()
            self._patience_s = START_S

    def _call(self, method: str, *args: Any) -> Any:
        if self._process is None:
            self._start()
        positions: list[int] = []
        try:
            module = module_of(args[0].kernel) if args else ""
            self._pipe.send((method, module, args))
            while self._pipe.poll(self._patience_s):
                kind, value = self._pipe.recv()
                self._patience_s = SILENCE_S
                if kind == "alive":
                    positions = value
                elif kind == "result":
                    return value
                elif kind == "poisoned":
                    self._kill()
                    raise WorkerDied(positions, value)
                else:
                    raise value
            why = f"no sign of life for {self._patience_s:.0f} s"
        except (EOFError, OSError):  # a message that breaks off is an OSError
            why = "the timing process died"
        self._kill()
        raise WorkerDied(positions, why)


def _visible(gpu: int) -> str:
    """The ``CUDA_VISIBLE_DEVICES`` of a process that is to see only one of the GPUs that this process may see."""
    ours = os.environ.get("CUDA_VISIBLE_DEVICES")
    if ours is None:
        return str(gpu)
    names = [name.strip() for name in ours.split(",") if name.strip()]
    if gpu >= len(names):
        raise UserError(f"GPU {gpu}: is not there, CUDA_VISIBLE_DEVICES={ours} leaves {len(names)}")
    return names[gpu]


def _see_and_serve(visible: str | None, serve: Serve, pipe: Connection, n_sms: int | None, parent: int) -> None:
    """Child's side: choose the GPU, which must come before anything here asks CUDA, then answer calls."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    serve(pipe, n_sms, parent)


def _serve(pipe: Connection, n_sms: int | None, parent: int) -> None:
    """Child's side: answer calls until the parent is gone."""
    import torch

    from bo_tuner.evaluators.session import TOLERANCE, GpuSession, sm_clock_mhz

    session: GpuSession | None = None
    while True:
        try:
            method, module, args = pipe.recv()
        except EOFError:
            return
        if os.getppid() != parent:
            return
        try:
            session = session or GpuSession(n_sms)
            result: Any = session.device, session.versions()
            if module:
                load_kernel(module)  # makes a kernel of the user's known here by its name
                session.open(args[0])
            if method == "time_all":
                _, configs, alone, dead = args
                start_mhz = sm_clock_mhz()
                rows, baselines = time_all(
                    session, configs, alone, dead, lambda positions: pipe.send(("alive", positions)), TOLERANCE
                )
                gpu = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)[:8]
                facts = {"sm_clock_start_mhz": start_mhz, "sm_clock_end_mhz": sm_clock_mhz(), "gpu": gpu}
                result = rows, baselines, facts
            elif method == "time_some":
                result = _time_some(session, args[1], args[2], TOLERANCE)
            torch.cuda.synchronize()
        except (UserError, torch.cuda.OutOfMemoryError) as error:
            pipe.send(("error", UserError(f"GPU: {str(error).splitlines()[0]}")))
        except Exception as error:  # a CUDA error sticks to the context: this process is of no more use
            pipe.send(("poisoned", f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"))
            return
        else:
            pipe.send(("result", result))


def _time_some(session: Any, configs: list[Config], n_readings: int, tolerance: float) -> Any:
    rows, loaded = first_rows(session, configs, tolerance)
    baselines = session.baselines()
    entrants = [*loaded.values(), *baselines.values()]
    readings = session.read(entrants * n_readings)
    of_entrant = [readings[place :: len(entrants)] for place in range(len(entrants))]
    for position, of_config in zip(loaded, of_entrant, strict=False):
        if rows[position].status is Status.CORRECT:
            rows[position].readings_us = of_config
    return rows, dict(zip(baselines, of_entrant[len(loaded) :], strict=True))
