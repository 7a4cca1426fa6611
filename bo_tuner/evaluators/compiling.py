"""Compiling ahead of time: many builds in parallel processes, each with a deadline, no GPU needed.

``triton.compile`` with an explicit target writes to Triton's disk cache; the timing process later finds every kernel
there. What the compiler refuses comes back as a failed ``Compiled``, never as an exception.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import multiprocessing
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from bo_tuner.kernels import load_kernel, module_of
from bo_tuner.kernels.program import Build
from bo_tuner.space import Config
from bo_tuner.storage.compiled import BuildFacts, CompiledFacts
from bo_tuner.study import Status
from bo_tuner.task import Task

#: Seconds that one config may take to compile.
DEADLINE_S = 60.0
#: Builds whose facts are written down together.
KEPT_TOGETHER = 32


class CannotRun(Exception):
    """A config that does not compile or does not fit the device."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Compiled:
    """What the compiler said of one build. ``kernel`` is Triton's ``CompiledKernel``, None when it failed."""

    kernel: Any
    compile_s: float
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.kernel is not None

    @property
    def shared_bytes(self) -> int:
        return int(self.kernel.metadata.shared)


def compile_build(build: Build, capability: tuple[int, int]) -> Compiled:
    """Compile one build for a compute capability, or load it from Triton's cache."""
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = list(build.signature)
    source = ASTSource(
        build.function,
        dict(build.signature),
        constexprs={(names.index(name),): value for name, value in build.constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in build.divisible},
    )
    target = GPUTarget("cuda", capability[0] * 10 + capability[1], 32)
    options = {"num_warps": build.num_warps, "num_stages": build.num_stages, "maxnreg": build.max_registers}
    start = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # of what the assembler refuses Triton prints the whole code
            kernel = triton_compile(source, target=target, options=options)
    except Exception as error:  # the compiler raises many types; each means that this config cannot be had
        return Compiled(None, time.perf_counter() - start, _one_line(error))
    return Compiled(kernel, time.perf_counter() - start)


def build_facts(compiled: Compiled) -> BuildFacts:
    """What a build needs, read from its machine code by the ``cuobjdump`` that Triton carries."""
    import triton

    cubin = compiled.kernel.asm["cubin"]

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"\b(REG|STACK):(\d+)", text))
    return BuildFacts(int(found["REG"]), int(found["STACK"]), compiled.shared_bytes)


def compile_missing(
    facts: CompiledFacts,
    task: Task,
    done: Callable[[CompileResult], None] = lambda _: None,
    n_workers: int | None = None,
) -> int:
    """Compile every build of a task that the facts lack for this Triton, and write down what each needs.

    What is compiled is kept whenever a few are done, so a killed run goes on where it stopped.

    Args:
        facts: are extended.
        task: its device may be one that is not here.
        done: called after each build.
        n_workers: number of processes; one less than the machine has cores by default.

    Returns:
        How many builds the compiler refused.
    """
    triton, configs, n_refused = triton_version(), facts.missing(task, triton_version()), 0
    with contextlib.closing(CompilePool(n_workers, inspect=True)) as pool:
        for start in range(0, len(configs), KEPT_TOGETHER):
            some = configs[start : start + KEPT_TOGETHER]
            results = pool.compile([(task, config) for config in some], done)
            found = [result.facts or BuildFacts() for result in results]
            n_refused += sum(result.facts is None for result in results)
            facts.add(task, triton, zip(some, found, strict=True))
    return n_refused


def triton_version() -> str:
    """The version of the compiler that is installed here."""
    return importlib.metadata.version("triton")


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {text[:200]}"


@dataclass(frozen=True)
class CompileResult:
    """How one compilation in the pool ended: seconds, why it failed (empty if it did not), what the build needs."""

    status: Status
    compile_s: float
    message: str = ""
    facts: BuildFacts | None = None


class CompilePool:
    """Worker processes that fill Triton's disk cache; one that overruns its deadline is killed and replaced.

    What was compiled once, or failed to, is remembered with the time that it took.

    Args:
        n_workers: number of processes; one less than the machine has cores by default.
        deadline_s: seconds that one config may take.
        inspect: read what each build needs as well.
    """

    def __init__(self, n_workers: int | None = None, deadline_s: float = DEADLINE_S, *, inspect: bool = False) -> None:
        self._inspect = inspect
        self._n_workers = n_workers or max(1, (os.cpu_count() or 2) - 1)
        self._deadline_s = deadline_s
        self._idle: list[_CompileWorker] = []
        self._all: list[_CompileWorker] = []
        self._results: dict[Hashable, CompileResult] = {}

    def compile(
        self,
        jobs: Sequence[tuple[Task, Config]],
        done: Callable[[CompileResult], None] = lambda _: None,
    ) -> list[CompileResult]:
        """Compile every job; equal builds only once. Results are in the order of the jobs.

        Args:
            jobs: what to compile, for the task's device.
            done: called after each distinct build that was not compiled before.
        """
        keys: list[Hashable] = [(t.device.capability, load_kernel(t.kernel).program.build(c, t).key) for t, c in jobs]
        results = self._results
        waiting = dict(zip(reversed(keys), reversed(jobs), strict=True))  # the first job of each key
        waiting = {key: job for key, job in waiting.items() if key not in results}
        busy: dict[Connection, tuple[_CompileWorker, Hashable, float]] = {}
        while waiting or busy:
            while waiting and len(busy) < self._n_workers:
                key, job = waiting.popitem()
                worker = self._idle.pop() if self._idle else self._started()
                worker.pipe.send((module_of(job[0].kernel), *job, self._inspect))
                busy[worker.pipe] = worker, key, time.perf_counter()
            answered = wait(list(busy), timeout=1.0)
            now = time.perf_counter()
            for pipe in list(busy):
                worker, key, start = busy[pipe]
                if pipe in answered:
                    try:
                        results[key] = pipe.recv()
                        self._idle.append(worker)
                    except EOFError:
                        results[key] = CompileResult(Status.COMPILE, now - start, "the compiler died")
                elif now - start > self._deadline_s:
                    worker.process.kill()
                    results[key] = CompileResult(
                        Status.TIMEOUT, now - start, f"compiling took over {self._deadline_s:.0f} s"
                    )
                else:
                    continue
                del busy[pipe]
                done(results[key])
        return [results[key] for key in keys]

    def close(self) -> None:
        """End the worker processes, busy ones too."""
        for worker in self._all:
            worker.process.kill()
            worker.process.join()
        self._idle.clear()
        self._all.clear()

    def _started(self) -> _CompileWorker:
        self._all.append(_CompileWorker())
        return self._all[-1]


class _CompileWorker:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_compile_forever, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()


def _compile_forever(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    while True:
        try:
            module, task, config, inspect = pipe.recv()
        except EOFError:
            return
        compiled = compile_build(load_kernel(module).program.build(config, task), task.device.capability)
        status = Status.CORRECT if compiled.ok else Status.COMPILE
        facts = build_facts(compiled) if inspect and compiled.ok else None
        pipe.send(CompileResult(status, compiled.compile_s, compiled.message, facts))
