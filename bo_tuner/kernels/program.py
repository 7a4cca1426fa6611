"""The GPU side of a kernel, seen from outside: what to compile, how to launch, what is right.

Nothing here imports Triton or torch; the modules in ``kernels/triton/`` do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bo_tuner.space import Config
from bo_tuner.task import Task

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Build:
    """All that the compiler sees of one config. Equal builds are the same machine code, whatever the launch keys.

    Args:
        function: the ``@triton.jit`` function.
        signature: argument name → Triton type; constexpr arguments are ``"constexpr"``.
        constants: values of the constexpr arguments.
        divisible: integer and pointer arguments that are promised to be multiples of 16.
        num_warps: warps a block.
        num_stages: depth of the software pipeline.
        max_registers: registers a thread that the assembler may use; fewer let more blocks share a multiprocessor, and
            what does not fit is spilled.
    """

    function: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    divisible: tuple[str, ...]
    num_warps: int
    num_stages: int
    max_registers: int | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Hashable identity."""
        return (
            self.function.__name__,
            tuple(self.signature.items()),
            tuple(self.constants.items()),
            self.divisible,
            self.num_warps,
            self.num_stages,
            self.max_registers,
        )


@dataclass(frozen=True)
class Launch:
    """One launch: the grid and every argument in the order of the jit function, constexprs included."""

    grid: tuple[int, int, int]
    args: tuple[Any, ...]


@dataclass
class Buffers:
    """Device memory of one task.

    Args:
        inputs: what a launch reads.
        output: what a launch writes.
        scratch: made on demand by the program.
        descriptors: of these tensors, by address and block; made on demand, since many configs share one.
    """

    inputs: tuple[torch.Tensor, ...]
    output: torch.Tensor
    scratch: dict[str, torch.Tensor] = field(default_factory=dict)
    descriptors: dict[tuple[int, ...], Any] = field(default_factory=dict)


class Program(ABC):
    """Compile, launch and judge one kernel."""

    @abstractmethod
    def build(self, config: Config, task: Task) -> Build:
        """What to compile for a config; must not depend on launch keys."""

    @abstractmethod
    def buffers(self, task: Task, seed: int, where: torch.device | str) -> Buffers:
        """Random inputs (never zeros) and an output for a task."""

    @abstractmethod
    def launch(self, config: Config, task: Task, buffers: Buffers) -> Launch:
        """Grid and arguments. Called once a config; the result may be launched many times."""

    @abstractmethod
    def reference(self, buffers: Buffers) -> torch.Tensor:
        """The right result in float32, of the output's shape."""

    @abstractmethod
    def baselines(self, buffers: Buffers) -> Mapping[str, Callable[[], object]]:
        """Library calls that compute the same, by name. One that cannot run may raise when called."""
