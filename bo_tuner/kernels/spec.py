"""What bo_tuner has to know of a kernel. One subclass a kernel is the whole of its CPU side.

The GPU side (jit sources, inputs, reference) is a ``Program`` in a module of its own, named by ``program_module`` and
imported only when something is compiled or run; see ``kernels/program.py``.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import tokenize
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.space import Columns, Config, Pool, SearchSpace
from bo_tuner.task import Device, Task

if TYPE_CHECKING:
    from bo_tuner.kernels.program import Program

Shape = Mapping[str, int]

TRAIN_SEED = 1
VALIDATION_SEED = 2
#: The first so many shapes of the two published seeds belong to their split alone; every other seed skips them.
N_RESERVED = 256


class KernelSpec(ABC):
    """The space, the validity, the costs and the features of one kernel."""

    name: ClassVar[str]
    shape_keys: ClassVar[tuple[str, ...]]
    program_module: ClassVar[str]
    #: Further modules that decide what the jit source does with a config.
    layout_modules: ClassVar[tuple[str, ...]] = ()
    #: Dimensions that the compiled kernel depends on; None for all of them.
    compiled_dimensions: ClassVar[tuple[str, ...] | None] = None
    space: ClassVar[SearchSpace]
    #: Counts the published versions of the space; a recorded table is of one.
    space_version: ClassVar[int] = 1

    @abstractmethod
    def check_shape(self, shape: Shape) -> None:
        """Raise ``UserError`` naming the dimension, its value and what is allowed; sizes are known to be positive."""

    @abstractmethod
    def flops(self, shape: Shape) -> float:
        """Floating-point operations of the result, padding not counted."""

    @abstractmethod
    def min_bytes(self, shape: Shape) -> float:
        """Bytes that must cross device memory: every input read once, every output written once."""

    @abstractmethod
    def shared_bytes(self, columns: Columns, task: Task) -> NDArray[np.int64]:
        """Shared memory a block, in bytes, as the compiler will allocate it on the task's device."""

    @abstractmethod
    def features(self, pool: Pool) -> dict[str, NDArray[np.float64]]:
        """Physical features of every config for the prior mean, each of length ``len(pool)``.

        Ratios to the device (waves, shared memory over the limit, intensity over the ridge), never its raw facts:
        that is what lets a prior cross to a GPU it has not seen.
        """

    def warps(self, columns: Columns) -> NDArray[np.int64]:
        """Warps a block."""
        return columns["num_warps"].astype(np.int64)

    @abstractmethod
    def draw_shape(self, rng: np.random.Generator) -> dict[str, int]:
        """One draw from the kernel's published distribution of shapes."""

    @abstractmethod
    def default_config(self, task: Task) -> Config:
        """What a careful user would write by hand without tuning; a valid config of the task's pool."""

    def task(self, shape: Shape, device: Device) -> Task:
        """A checked task.

        Raises:
            UserError: a dimension is missing, unknown, not a positive integer, or not allowed.
        """
        for key in self.shape_keys:
            if key not in shape:
                raise UserError(f"{key}: is missing; {self.name} needs {', '.join(self.shape_keys)}")
            value: Any = shape[key]  # whatever a caller put there
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"{key}: {value!r} is not an integer of at least 1")
        unknown = sorted(set(shape) - set(self.shape_keys))
        if unknown:
            raise UserError(f"{unknown[0]}: is no dimension of {self.name}, which has {', '.join(self.shape_keys)}")
        self.check_shape(shape)
        return Task(self.name, {key: shape[key] for key in self.shape_keys}, device)

    def pool(self, task: Task) -> Pool:
        """Every valid config of a task, cached for the few tasks used last."""
        return _cached_pool(self, task)

    def sample_shapes(self, n: int, seed: int) -> list[dict[str, int]]:
        """The first ``n`` distinct shapes of a seed; the same on every machine, and a prefix of any larger ``n``.

        No shape of the published train seed appears under another seed, and none of the published validation seed
        under a third one, so a test set drawn with a seed of your own shares no shape with either.
        """
        taken = self._reserved(TRAIN_SEED) if seed != TRAIN_SEED else frozenset()
        if seed not in (TRAIN_SEED, VALIDATION_SEED):
            taken |= self._reserved(VALIDATION_SEED)
        drawn = self._draws(seed, taken)
        return [next(drawn) for _ in range(n)]

    def _draws(self, seed: int, taken: frozenset[tuple[int, ...]]) -> Iterator[dict[str, int]]:
        rng, seen = np.random.default_rng(seed), set(taken)
        while True:
            shape = self.draw_shape(rng)
            if (key := tuple(shape.values())) not in seen:
                seen.add(key)
                yield shape

    @functools.cache  # noqa: B019 - specs are singletons that live as long as the process
    def _reserved(self, seed: int) -> frozenset[tuple[int, ...]]:
        return frozenset(tuple(shape.values()) for shape in self.sample_shapes(N_RESERVED, seed))

    @functools.cached_property
    def source_hash(self) -> str:
        """Hash of the jit source, which a recorded table is only true of; empty for a kernel without one.

        Comments, docstrings, imports and layout do not count.
        """
        sources = [importlib.util.find_spec(name) for name in (self.program_module, *self.layout_modules)]
        code = [_code(Path(found.origin)) for found in sources if found is not None and found.origin is not None]
        return hashlib.sha256("".join(code).encode()).hexdigest()[:16] if code else ""

    @property
    def program(self) -> Program:
        """The GPU side; importing it imports Triton."""
        program: Any = importlib.import_module(self.program_module).PROGRAM
        return program


def _code(path: Path) -> str:
    """The tokens of a source file that say what it does, the same in every Python version."""
    marks = {tokenize.NEWLINE: "\n", tokenize.INDENT: ">", tokenize.DEDENT: "<"}
    lines: list[list[str]] = [[]]
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER):
                lines[-1].append(marks.get(token.type, token.string))
            if token.type == tokenize.NEWLINE:
                lines.append([])
    return "".join("".join(_indents(line) if _says_nothing(line) else line) for line in lines)


def _indents(line: list[str]) -> list[str]:
    return [word for word in line if word in ("<", ">")]


def _says_nothing(line: list[str]) -> bool:
    """Whether a logical line is an import or a docstring."""
    words = [word for word in line if word not in ("<", ">", "\n")]
    return bool(words) and (words[0] in ("import", "from") or (len(words) == 1 and words[0].endswith('"""')))


@functools.lru_cache(maxsize=256)
def _cached_pool(spec: KernelSpec, task: Task) -> Pool:
    return spec.space.pool(task)


def ceil_div(a: Any, b: Any) -> Any:
    """Integer division rounded up, for integers and arrays."""
    return -(-a // b)


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n``, for ``n`` of 1 or more."""
    return 1 << (n - 1).bit_length()
