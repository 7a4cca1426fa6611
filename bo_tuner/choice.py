"""A config without a single trial: the one that the shipped prior expects to be the fastest."""

from __future__ import annotations

import functools

from bo_tuner.errors import UserError
from bo_tuner.kernels import load_kernel
from bo_tuner.pretrained import load_prior
from bo_tuner.space import Config
from bo_tuner.surrogates.meta_gp import MetaGP
from bo_tuner.task import Task


def choose(task: Task) -> Config:
    """The config that the shipped prior of the task's kernel expects to be the fastest; nothing is timed or compiled.

    The first call for a kernel loads its prior, the first for a task predicts its configs, and later ones look it up.

    Args:
        task: of a kernel with a shipped prior.

    Raises:
        UserError: there is no such kernel or no prior of it, or the task has no valid config.
    """
    return dict(_favourite(task))


@functools.lru_cache(maxsize=4096)
def _favourite(task: Task) -> Config:
    pool = load_kernel(task.kernel).pool(task)
    if not len(pool):
        raise UserError(f"task: {task.key} has no valid config")
    return _prior(task.kernel).favourites(pool, 1)[0]


@functools.cache
def _prior(kernel: str) -> MetaGP:
    return load_prior(load_kernel(kernel))
