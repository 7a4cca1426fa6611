"""The finite space of valid configs of a task: parameters, rules, the pool.

Parameters are handled as columns (one NumPy array a parameter over all candidate configs), so a rule written once
judges ten thousand configs in a millisecond, and one config by the same code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.task import Task

Value = int | bool | str
Config = Mapping[str, Value]
Columns = Mapping[str, NDArray[Any]]
Predicate = Callable[[Columns, Task], NDArray[np.bool_]]


@dataclass(frozen=True)
class Parameter:
    """One tunable parameter.

    Args:
        name: its name in every config.
        values: what it may be, in order.
        kind: ``logarithmic`` and ``integer`` are ordered (encoded as log2 and as the value), ``categorical`` is not.
        launch: true when the value is a run-time argument, so that changing it compiles nothing.
        active: where the parameter has an effect; None means everywhere. Elsewhere a canonical config leaves it out.
        neutral: the value that stands in its column where it has no effect, for example a split factor of 1.
    """

    name: str
    values: tuple[Value, ...]
    kind: Literal["logarithmic", "integer", "categorical"]
    launch: bool = False
    active: Predicate | None = None
    neutral: Value | None = None

    def __post_init__(self) -> None:
        if (self.active is None) != (self.neutral is None):
            raise ValueError(
                f"{self.name}: a conditional parameter needs a neutral value, an unconditional one has none"
            )

    @property
    def categories(self) -> tuple[Value, ...]:
        """All values a column may hold, the neutral one last if it is no regular value."""
        extra = () if self.neutral is None or self.neutral in self.values else (self.neutral,)
        return self.values + extra

    def encode(self, column: NDArray[Any]) -> NDArray[np.float64]:
        """Coordinates for a covariance: log2, the value, or the category's index."""
        if self.kind == "logarithmic":
            return np.log2(column.astype(np.float64))
        if self.kind == "integer":
            return column.astype(np.float64)
        codes = {value: float(code) for code, value in enumerate(self.categories)}
        return np.array([codes[value] for value in column.tolist()], dtype=np.float64)


def power_of_two(name: str, low: int, high: int, **more: Any) -> Parameter:
    """Powers of two from ``low`` to ``high``, both included."""
    return logarithmic(name, [1 << bit for bit in range(low.bit_length() - 1, high.bit_length())], **more)


def logarithmic(name: str, values: Sequence[int], **more: Any) -> Parameter:
    """Positive integers whose ratios matter, not their differences."""
    return Parameter(name, tuple(values), "logarithmic", **more)


def integer(name: str, values: Sequence[int], **more: Any) -> Parameter:
    """Ordered integers."""
    return Parameter(name, tuple(values), "integer", **more)


def categorical(name: str, values: Sequence[Value], **more: Any) -> Parameter:
    """Unordered values."""
    return Parameter(name, tuple(values), "categorical", **more)


@dataclass(frozen=True)
class Rule:
    """Why a config is not valid: ``broken`` is true where it is not, ``reason`` says why in words."""

    reason: str
    broken: Predicate


@dataclass(frozen=True)
class Pool:
    """All valid configs of one task, encoded once. Row order is the same on every machine.

    ``rejected`` counts what each rule refused: combinations of the parameters that it took to apply the rule.
    """

    task: Task
    parameters: tuple[Parameter, ...]
    columns: Columns
    active: Mapping[str, NDArray[np.bool_]]
    rejected: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __iter__(self) -> Iterator[Config]:
        return (self.config(row) for row in range(len(self)))

    def config(self, row: int) -> dict[str, Value]:
        """The canonical config of a row: a parameter that has no effect is absent."""
        return {p.name: self.columns[p.name][row].item() for p in self.parameters if self.active[p.name][row]}

    def index(self, config: Config) -> int:
        """The row of a config; found once and remembered, since listing every config takes long in a large pool.

        Raises:
            UserError: the config is not in the pool.
        """
        key = config_key(config)
        if key not in self._found:
            same = np.full(len(self), set(config) <= set(self.columns))
            for name, column in self.columns.items():
                active = self.active[name]
                same &= active & (column == config[name]) if name in config else ~active
            if not same.any():
                raise UserError(f"config: {key} is not a valid config of {self.task.key}")
            self._found[key] = int(np.argmax(same))
        return self._found[key]

    @functools.cached_property
    def _found(self) -> dict[str, int]:
        return {}

    @functools.cached_property
    def keys(self) -> list[str]:
        """Canonical text of every config; equal text means the same config, in any task of the kernel."""
        return [config_key(config) for config in self]

    @functools.cached_property
    def builds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One row of each distinct build, and for every row the place of its build among these.

        Configs that differ in launch keys only are one build.
        """
        compiled = [column for column, p in zip(self.encoded.T, self.parameters, strict=True) if not p.launch]
        _, rows, places = np.unique(np.column_stack(compiled), axis=0, return_index=True, return_inverse=True)
        return rows, places.reshape(-1)

    @functools.cached_property
    def encoded(self) -> NDArray[np.float64]:
        """Coordinates, ``len(self) × n_parameters``: log2 or value of ordered parameters, codes of categorical ones."""
        return np.column_stack([p.encode(self.columns[p.name]) for p in self.parameters])


def config_key(config: Config) -> str:
    """Canonical text of a config, parameters in alphabetical order."""
    return ",".join(f"{name}={config[name]}" for name in sorted(config))


@dataclass(frozen=True)
class SearchSpace:
    """Parameters and the rules that decide which combinations are valid for a task."""

    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...]

    def pool(self, task: Task) -> Pool:
        """Enumerate every valid config of a task."""
        columns: dict[str, NDArray[Any]] = {}
        active: dict[str, NDArray[np.bool_]] = {}
        rejected, waiting = {rule.reason: 0 for rule in self.rules}, list(self.rules)
        for parameter in self.parameters:
            _multiply(columns, active, parameter, task)
            # A rule is applied as soon as the columns that it reads are there, before the rest multiply the rows.
            for rule in list(waiting):
                try:
                    valid = ~np.broadcast_to(rule.broken(columns, task), len(columns[parameter.name]))
                except KeyError:
                    continue
                waiting.remove(rule)
                rejected[rule.reason] = int((~valid).sum())
                for some in (columns, active):
                    some.update({name: column[valid] for name, column in some.items()})
        for rule in waiting:
            rule.broken(columns, task)  # raises: it reads a column that no parameter has
        return Pool(task, self.parameters, columns, active, rejected)

    def why_invalid(self, config: Config, task: Task) -> str | None:
        """The first reason why a config is not valid for a task, or None if it is valid."""
        columns: dict[str, NDArray[Any]] = {}
        for parameter in self.parameters:
            is_active = parameter.active is None or bool(parameter.active(columns, task)[0])
            value = config.get(parameter.name)
            if not is_active:
                if value is not None:
                    return f"{parameter.name}: has no effect here and must be left out"
                value = parameter.neutral
            elif value is None:
                return f"{parameter.name}: is missing"
            elif value not in parameter.values:
                return f"{parameter.name}: {value!r} is not one of {', '.join(map(str, parameter.values))}"
            columns[parameter.name] = np.array([value])
        unknown = sorted(set(config) - set(columns))
        if unknown:
            return f"{unknown[0]}: is no parameter of this kernel"
        return next((rule.reason for rule in self.rules if rule.broken(columns, task)[0]), None)


def _multiply(
    columns: dict[str, NDArray[Any]], active: dict[str, NDArray[np.bool_]], parameter: Parameter, task: Task
) -> None:
    """Combine all rows with every value of one more parameter, or with the neutral one where it has no effect."""
    n_rows = len(next(iter(columns.values()))) if columns else 1
    mask = np.ones(n_rows, dtype=bool)
    if parameter.active is not None:
        mask = np.broadcast_to(parameter.active(columns, task), (n_rows,))
    repeats = np.where(mask, len(parameter.values), 1)
    starts = np.cumsum(repeats) - repeats
    offset = np.arange(int(repeats.sum())) - np.repeat(starts, repeats)
    mask = np.repeat(mask, repeats)
    column = np.array(parameter.values)[offset]
    if parameter.neutral is not None:
        column = np.where(mask, column, np.array(parameter.neutral))
    for some in (columns, active):
        some.update({name: np.repeat(old, repeats) for name, old in some.items()})
    columns[parameter.name], active[parameter.name] = column, mask
