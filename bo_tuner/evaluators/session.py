"""The GPU side of an evaluator: load kernels, check them, time them. Lives in the timing process alone."""

from __future__ import annotations

import math
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.runtime.errors import OutOfResources

from bo_tuner.evaluators.compiling import CannotRun, Compiled, compile_build
from bo_tuner.evaluators.partial import stream_on_sms
from bo_tuner.evaluators.timing import POLICY, Timer
from bo_tuner.kernels import load_kernel
from bo_tuner.kernels.program import Buffers, Build
from bo_tuner.space import Config
from bo_tuner.study import Status
from bo_tuner.task import Device, Task, file_key, known_devices

#: Largest ‖out − ref‖ / ‖ref‖ of a correct BF16 result against a float32 reference.
TOLERANCE = 1e-2


@dataclass(frozen=True)
class Loaded:
    """One config ready to launch, with what the driver says of its machine code."""

    call: Callable[[], object]
    n_registers: int
    n_spill_bytes: int
    shared_bytes: int


class GpuSession:
    """One GPU, or some of its multiprocessors, and at most one open task."""

    def __init__(self, n_sms: int | None = None) -> None:
        self.device = current_device()
        if n_sms is not None and n_sms != self.device.n_sms:
            self.device = self.device.with_sms(n_sms)
            torch.cuda.set_stream(stream_on_sms(n_sms))
        self.timer = Timer()
        self._compiled: dict[Any, Compiled] = {}
        self._builds: dict[tuple[Any, ...], Build] = {}
        self._task: Task | None = None

    def versions(self) -> dict[str, dict[str, str]]:
        """What a table must say of how it was timed: the policy, and the software's versions."""
        software = {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "triton": triton.__version__,
            "cuda": str(torch.version.cuda),
            "driver": _driver_version(),
        }
        return {"timing": {**POLICY, "tolerance": f"{TOLERANCE:g}"}, "software": software}

    def open(self, task: Task) -> None:
        """Make inputs, output and reference of a task; those of the task before are freed."""
        if self._task == task:
            return
        self._task, self._buffers, self._reference, self._difference = None, None, None, None
        torch.cuda.empty_cache()
        spec = load_kernel(task.kernel)
        self._program = spec.program
        self._launch_keys = frozenset(p.name for p in spec.space.parameters if p.launch)
        self._builds.clear()
        self._buffers = self._program.buffers(task, 0, "cuda")
        self._reference = self._program.reference(self._buffers)
        self._difference = torch.empty_like(self._reference)
        self._norm = float(torch.linalg.vector_norm(self._reference))
        self._task = task

    def load(self, config: Config) -> Loaded:
        """Load a config's kernel on the GPU (from the compile cache if it is there) and bind its arguments.

        Raises:
            CannotRun: it does not compile or does not fit the device. Any other error means that the CUDA context is
                broken.
        """
        assert self._task is not None
        build = self._build(config)
        compiled = self._compiled.get(build.key)
        if new := compiled is None:
            compiled = self._compiled[build.key] = compile_build(build, self.device.capability)
        if not compiled.ok:
            raise CannotRun(Status.COMPILE, compiled.message)
        kernel = compiled.kernel
        launch = self._program.launch(config, self._task, self._buffers_open)
        try:
            run = kernel[launch.grid]  # loads the machine code
        except OutOfResources as error:
            raise CannotRun(Status.RUNTIME, " ".join(str(error).split())) from None
        if new:
            run(*launch.args)  # the first launch of a kernel may reserve local memory, which waits for the GPU
        n_spill_bytes = 4 * kernel.n_spills  # Triton counts words
        return Loaded(lambda: run(*launch.args), kernel.n_regs, n_spill_bytes, int(kernel.metadata.shared))

    def _build(self, config: Config) -> Build:
        """The config's build; configs that differ in launch keys only share one."""
        assert self._task is not None
        key = tuple(item for item in config.items() if item[0] not in self._launch_keys)
        if key not in self._builds:
            self._builds[key] = self._program.build(config, self._task)
        return self._builds[key]

    def check_and_read(self, loaded: Sequence[Loaded]) -> tuple[list[float], list[float]]:
        """One reading in µs and the relative error ‖out − ref‖ / ‖ref‖ of each, from an output poisoned with NaN."""
        output, errors = self._buffers_open.output, torch.empty(len(loaded), device="cuda")
        reference, difference = self._reference, self._difference
        assert reference is not None

        def compare(position: int) -> None:
            torch.sub(output, reference, out=difference)
            torch.linalg.vector_norm(difference, out=errors[position])

        readings = self.timer.read([one.call for one in loaded], before=lambda _: output.fill_(math.nan), after=compare)
        return readings, (errors / self._norm).tolist()

    def read(self, loaded: Sequence[Loaded]) -> list[float]:
        """One reading in µs of each, in the order given."""
        return self.timer.read([one.call for one in loaded])

    def baselines(self) -> dict[str, Loaded]:
        """The library calls that run here, each tried once."""
        working = {}
        for name, call in self._program.baselines(self._buffers_open).items():
            try:
                call()
                torch.cuda.synchronize()
            except RuntimeError:  # a back end that does not take this shape
                continue
            working[name] = Loaded(call, 0, 0, 0)
        return working

    @property
    def _buffers_open(self) -> Buffers:
        assert self._buffers is not None
        return self._buffers


def current_device() -> Device:
    """Facts of the current CUDA device: the data sheet's if it is listed there, else its properties and two timings."""
    facts: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    if (known := known_devices().get(file_key(facts.name))) is not None and (
        known.n_sms == facts.multi_processor_count
    ):
        return known
    return Device(
        name=facts.name,
        capability=(facts.major, facts.minor),
        n_sms=facts.multi_processor_count,
        shared_per_block_bytes=facts.shared_memory_per_block_optin,
        shared_per_sm_bytes=facts.shared_memory_per_multiprocessor,
        registers_per_sm=facts.regs_per_multiprocessor,
        threads_per_sm=facts.max_threads_per_multi_processor,
        l2_bytes=facts.L2_cache_size,
        memory_bytes=facts.total_memory,
        bandwidth_gb_s=_measured_bandwidth(),
        peak_bf16_tflops=_measured_peak(),
    )


def sm_clock_mhz() -> int:
    """Current clock of the multiprocessors, -1 where the driver's management library is missing."""
    try:
        return int(torch.cuda.clock_rate())
    except Exception:  # pynvml is optional and raises types of its own
        return -1


def _driver_version() -> str:
    """Version of the GPU driver, as ``nvidia-smi`` gives it; empty where that tool is missing."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _measured_bandwidth() -> float:
    """Device-to-device copy, read and written bytes counted, in GB/s."""
    source = torch.empty(2**30, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / _best_us(lambda: target.copy_(source)) / 1e3


def _measured_peak() -> float:
    """A large BF16 product through the library, in TFLOP/s."""
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    return 2 * 8192**3 / _best_us(lambda: a @ b) / 1e6


def _best_us(call: Callable[[], object]) -> float:
    return min(Timer().read([call] * 6)[1:])
