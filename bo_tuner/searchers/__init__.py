"""Search methods by name. Nothing heavy is imported before a method is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.searchers.base import Searcher, SpaceExhausted
from bo_tuner.task import Task

if TYPE_CHECKING:
    from bo_tuner.surrogates.meta_gp import MetaGP

__all__ = ["Searcher", "SpaceExhausted", "make_searcher", "method_names", "needs_prior"]

#: (spec, task, seed, prior) → searcher.
SearcherFactory = Callable[[KernelSpec, Task, int, "MetaGP | None"], Searcher]

#: How much surer than it should be a meta-trained prior is taken to be. Its residuals have heavier tails than a normal
#: distribution; looking where it is likely, though not surely, wrong finds the best configs that it thinks slow.
META_EXPLORATION = 2.0
#: Random trials before a surrogate that knows nothing is asked.
N_COLD_TRIALS = 5


def make_searcher(method: str, spec: KernelSpec, task: Task, *, seed: int = 0, prior: MetaGP | None = None) -> Searcher:
    """A fresh searcher for one run.

    Args:
        method: one of :func:`method_names`.
        spec: the kernel.
        task: what is tuned.
        seed: of every random choice.
        prior: a trained surrogate, for the methods that need one.

    Raises:
        UserError: there is no such method, or it needs a prior and none is given.
    """
    if method not in _FACTORIES:
        raise UserError(f"method: {method!r} is not one of {', '.join(method_names())}")
    if needs_prior(method) and prior is None:
        raise UserError(f"method: {method} needs a trained prior for {spec.name}")
    return _FACTORIES[method](spec, task, seed, prior)


def method_names() -> list[str]:
    """Names that :func:`make_searcher` knows."""
    return sorted(_FACTORIES)


def needs_prior(method: str) -> bool:
    """Whether a method needs a trained prior."""
    return method in _NEED_PRIOR


def _meta_gp(acquisition: str) -> SearcherFactory:
    def make(spec: KernelSpec, task: Task, seed: int, prior: MetaGP | None) -> Searcher:
        from bo_tuner.searchers.bayesian import BayesianSearcher

        assert prior is not None
        return BayesianSearcher(spec.pool(task), prior, acquisition, exploration=META_EXPLORATION, seed=seed)

    return make


def _cold_gp(spec: KernelSpec, task: Task, seed: int, prior: MetaGP | None) -> Searcher:
    from bo_tuner.searchers.bayesian import BayesianSearcher
    from bo_tuner.surrogates.cold_gp import ColdGP

    return BayesianSearcher(spec.pool(task), ColdGP(), n_random=N_COLD_TRIALS, seed=seed)


def _random(spec: KernelSpec, task: Task, seed: int, prior: MetaGP | None) -> Searcher:
    from bo_tuner.searchers.ranking import RankingSearcher, random_order

    pool = spec.pool(task)
    return RankingSearcher(pool, random_order(pool, seed))


def _prior_only(spec: KernelSpec, task: Task, seed: int, prior: MetaGP | None) -> Searcher:
    from bo_tuner.searchers.ranking import RankingSearcher

    assert prior is not None
    pool = spec.pool(task)
    return RankingSearcher(pool, np.argsort(-prior.prior_mean(pool), kind="stable"))


def _portfolio(spec: KernelSpec, task: Task, seed: int, prior: MetaGP | None) -> Searcher:
    from bo_tuner.searchers.ranking import RankingSearcher, portfolio_order

    assert prior is not None
    pool = spec.pool(task)
    return RankingSearcher(pool, portfolio_order(pool, prior.portfolio, seed))


_FACTORIES: dict[str, SearcherFactory] = {
    "meta_gp": _meta_gp("log_ei"),
    "meta_gp_greedy": _meta_gp("posterior_mean"),
    "meta_gp_ucb": _meta_gp("ucb"),
    "cold_gp": _cold_gp,
    "random": _random,
    "prior_only": _prior_only,
    "portfolio": _portfolio,
}
_NEED_PRIOR = {"meta_gp", "meta_gp_greedy", "meta_gp_ucb", "prior_only", "portfolio"}
