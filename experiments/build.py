"""From a cfg to objects: the one place that instantiates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hydra.utils import instantiate

from bo_tuner.errors import UserError
from bo_tuner.kernels import KernelSpec
from bo_tuner.searchers import Searcher, SearcherFactory
from bo_tuner.surrogates import Surrogate
from bo_tuner.surrogates.meta_gp import MetaGP
from bo_tuner.task import Task
from experiments.schema import MethodCfg


def searcher_factory(name: str, method: MethodCfg, spec: KernelSpec) -> SearcherFactory:
    """What makes a searcher for each run. The surrogate is made once: runs share its trained prior.

    Args:
        name: how the method is called in the results.
        method: its parts.
        spec: the kernel.
    """
    searcher = _function(method.searcher)
    surrogate: Surrogate | None = None if method.surrogate is None else _function(method.surrogate)(spec)
    acquisition = None if method.acquisition is None else method.acquisition.name

    def make(spec: KernelSpec, task: Task, seed: int, prior: MetaGP | None) -> Searcher:
        if isinstance(surrogate, MetaGP) and surrogate.has_seen(task):
            raise UserError(f"prior: {name}'s was trained on {task.key}, which this split would judge it on")
        made: Searcher = searcher(spec, task, seed, surrogate, acquisition)
        return made

    make.__name__ = name
    return make


def _function(node: Any) -> Callable[..., Any]:
    """The function of ``experiments/parts.py`` that a node names, with the node's arguments bound."""
    function: Callable[..., Any] = instantiate(node)
    return function
