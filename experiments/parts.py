"""What ``_target_`` names in a cfg: functions that make a surrogate or a searcher. ``build.py`` calls them.

A surrogate function takes the kernel's spec; a searcher function takes the task's spec, the task, the seed and the
method's other parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bo_tuner.commands.locate import compiled_facts, tables_root
from bo_tuner.errors import UserError
from bo_tuner.kernels import KernelSpec
from bo_tuner.pretrained import load_prior
from bo_tuner.searchers import Searcher, make_searcher
from bo_tuner.searchers.bayesian import BayesianSearcher
from bo_tuner.surrogates import Surrogate
from bo_tuner.surrogates.cold_gp import ColdGP
from bo_tuner.surrogates.meta_gp import MetaGP
from bo_tuner.task import Task
from experiments.training import recorded_facts, source_paths, trained_prior


def meta_gp(spec: KernelSpec, *, prior: str | None, compiled: str | None, **options: Any) -> Surrogate:
    """The meta-trained GP with a prior from a file (or the shipped one) and options of its own."""
    facts = compiled_facts(Path(compiled) if compiled else None, spec)
    return load_prior(spec, Path(prior) if prior else None, compiled=facts, **options)


def meta_trained(
    spec: KernelSpec,
    *,
    tables: str | None,
    sources: Mapping[str, Any],
    n_shapes: int | None,
    cache: str,
    compiled: bool,
    **options: Any,
) -> Surrogate:
    """The meta-trained GP with a prior of the experiment's own, see ``experiments/training.py``."""
    paths = source_paths(tables_root(Path(tables) if tables else None), spec, **sources)
    facts = recorded_facts(spec, paths, Path(cache)) if compiled else None
    return trained_prior(spec, paths, n_shapes, {**options, "compiled": facts}, Path(cache))


def cold_gp(spec: KernelSpec, **options: Any) -> Surrogate:
    """A GP without a learned prior."""
    return ColdGP(**options)


def bayesian(
    spec: KernelSpec,
    task: Task,
    seed: int,
    surrogate: Surrogate | None,
    acquisition: str | None,
    *,
    exploration: float,
    n_random: int,
) -> Searcher:
    """Bayesian optimization with the method's surrogate and acquisition."""
    if surrogate is None or acquisition is None:
        raise UserError("method: a Bayesian searcher needs a surrogate and an acquisition")
    return BayesianSearcher(
        spec.pool(task), surrogate, acquisition, exploration=exploration, n_random=n_random, seed=seed
    )


def registered(
    spec: KernelSpec, task: Task, seed: int, surrogate: Surrogate | None, acquisition: str | None, *, method: str
) -> Searcher:
    """A method of ``bo_tuner.searchers`` by its name; it brings its own acquisition, if it has one."""
    if acquisition is not None:
        raise UserError(f"acquisition: {method} chooses its own, leave it out")
    if not isinstance(surrogate, MetaGP | None):
        raise UserError(f"surrogate: {method} takes a meta-trained prior or none")
    return make_searcher(method, spec, task, seed=seed, prior=surrogate)
