"""The schema of every cfg. A misspelt key or a value of a wrong type fails when the cfg is composed, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING


@dataclass
class KernelCfg:
    """The kernel: a built-in name or ``package.module`` of a spec."""

    name: str = MISSING


@dataclass
class DeviceCfg:
    """The device whose tables are replayed, by key."""

    name: str = MISSING


@dataclass
class SplitCfg:
    """Which tables: the name of their file."""

    name: str = MISSING


@dataclass
class ShapesCfg:
    """Which tasks of the split: all, or ``n_tasks`` from the fastest to the slowest in even steps."""

    n_tasks: int | None = None


@dataclass
class AcquisitionCfg:
    """An acquisition of ``bo_tuner.acquisition``, by its name."""

    name: str = MISSING


@dataclass
class MethodCfg:
    """A searcher and its parts, see ``experiments/parts.py``, whose functions check their own arguments."""

    searcher: dict[str, Any] = MISSING
    surrogate: dict[str, Any] | None = None
    acquisition: AcquisitionCfg | None = None


@dataclass
class CompareCfg:
    """Methods × tasks × seeds.

    ``tables`` is the folder of recorded tables; null stands for ``data/`` here or in the checkout. ``n_resamples``
    is for the bootstrap bands.
    """

    name: str = MISSING
    kernel: KernelCfg = field(default_factory=KernelCfg)
    device: DeviceCfg = field(default_factory=DeviceCfg)
    split: SplitCfg = field(default_factory=SplitCfg)
    shapes: ShapesCfg = field(default_factory=ShapesCfg)
    methods: dict[str, MethodCfg] = field(default_factory=dict)
    trials: int = 20
    n_seeds: int = 3
    tables: str | None = None
    n_resamples: int = 2000


@dataclass
class ReportCfg:
    """The page of results.

    ``runs`` maps an experiment to the devices that it judges; each is run for every kernel, with ``overrides`` added,
    into ``folder``; at most ``n_jobs`` at a time. ``docs`` is where the page and its plots go.
    """

    kernels: list[str] = MISSING
    runs: dict[str, list[str]] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    folder: str = MISSING
    docs: str = MISSING
    n_jobs: int = 1


def register() -> None:
    """Make the schemas known to Hydra; entry points call this before they compose."""
    ConfigStore.instance().store(name="compare_schema", node=CompareCfg)
    ConfigStore.instance().store(name="report_schema", node=ReportCfg)
