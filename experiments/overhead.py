"""What asking costs on this machine: a choice without a trial, the prior of a task, and each later trial.

    python -m experiments.overhead

Choices are for shapes of the validation draw; no table is read and no GPU used. No shape has 10,000 valid configs, so
the trials run over random combinations of the kernel's values, valid or not; their readings are synthetic (the prior's
mean with scatter).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import TypeVar

import numpy as np

from bo_tuner.commands.arguments import positive
from bo_tuner.errors import UserError
from bo_tuner.kernels import KernelSpec, load_kernel
from bo_tuner.kernels.spec import VALIDATION_SEED
from bo_tuner.pretrained import load_prior
from bo_tuner.searchers import META_EXPLORATION
from bo_tuner.searchers.bayesian import BayesianSearcher
from bo_tuner.space import Config, Pool, SearchSpace
from bo_tuner.study import Measurement, Status, Trial
from bo_tuner.surrogates.meta_gp import MetaGP
from bo_tuner.task import Device, Task, device_named

N_TRIALS = 20
READING_SD = 0.05
A = TypeVar("A")
T = TypeVar("T")


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.overhead", description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", metavar="N", type=positive, default=20, help="shapes a kernel (default: 20)")
    parser.add_argument(
        "--configs", metavar="N", type=positive, default=10_000, help="of the large pool (default: 10000)"
    )
    parser.add_argument("--device", metavar="NAME", default="nvidia_h200", help="whose configs (default: nvidia_h200)")
    given = parser.parse_args(arguments)
    try:
        device = device_named(given.device)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for kernel in ("gemm", "attention"):
        spec = load_kernel(kernel)
        prior, load_s = timed(load_prior, spec)
        print(f"{kernel}: prior loaded in {load_s:.2f} s", flush=True)
        print(f"  a choice without a trial: {choices(spec, prior, device, given.shapes)}", flush=True)
        print(f"  {given.configs:,} configs: {trials(spec, prior, device, given.configs)}", flush=True)
    return 0


def choices(spec: KernelSpec, prior: MetaGP, device: Device, n_shapes: int) -> str:
    """What ``bo_tuner.choose`` does at the first sight of a shape: list its configs, predict them, take the first."""
    tasks = [spec.task(shape, device) for shape in spec.sample_shapes(n_shapes, VALIDATION_SEED)]

    def first_sight(task: Task) -> list[Config]:
        return prior.favourites(spec.space.pool(task), 1)

    first_sight(tasks[0])  # what is slow the first time in a process shall not count
    seconds = [timed(first_sight, task)[1] for task in tasks]
    sizes = [len(spec.pool(task)) for task in tasks]
    return f"{spread(seconds, 0)}, of {min(sizes)} to {max(sizes)} configs"


def trials(spec: KernelSpec, prior: MetaGP, device: Device, n_configs: int) -> str:
    """A run of synthetic trials over a large pool."""
    pools = [large_pool(spec, device, n_configs, seed) for seed in range(3)]
    run(pools[0], prior, 0)
    runs = [run(pool, prior, seed) for seed, pool in enumerate(pools)]
    once, asks = median(once for once, _ in runs), [seconds for _, later in runs for seconds in later]
    return f"prior of the task {1e3 * once:.0f} ms once, then a trial: {spread(asks, 1)}"


def spread(seconds: Sequence[float], digits: int) -> str:
    """Median and extremes in milliseconds."""
    least, middle, most = (f"{1e3 * some:.{digits}f}" for some in (min(seconds), median(seconds), max(seconds)))
    return f"median {middle} ms ({least} to {most})"


def run(pool: Pool, prior: MetaGP, seed: int) -> tuple[float, list[float]]:
    """Seconds of what is made once for a pool, and of each trial after it (telling is part of it)."""
    pool = replace(pool)  # nothing is remembered of it
    rng = np.random.default_rng(seed)
    searcher = BayesianSearcher(pool, prior, exploration=META_EXPLORATION)
    mean, mean_s = timed(prior.prior_mean, pool)
    _, covariance_s = timed(prior.covariance, pool)
    _, index_s = timed(pool.index, pool.config(0))
    seconds = []
    for number in range(N_TRIALS):
        start = time.perf_counter()
        config = searcher.ask()
        asked = time.perf_counter() - start
        time_us = float(np.exp(rng.normal(-mean[pool.index(config)], READING_SD)))
        start = time.perf_counter()
        searcher.tell(Trial(number, config, Measurement(Status.CORRECT, (time_us,)), asked))
        seconds.append(asked + time.perf_counter() - start)
    return mean_s + covariance_s + index_s, seconds[1:]


def large_pool(spec: KernelSpec, device: Device, n_configs: int, seed: int) -> Pool:
    """Random combinations of the kernel's values for a shape, whatever its rules say of them."""
    task = spec.task(spec.sample_shapes(seed + 1, VALIDATION_SEED)[seed], device)
    pool = SearchSpace(spec.space.parameters, ()).pool(task)
    rows = np.sort(np.random.default_rng(seed).permutation(len(pool))[:n_configs])
    columns, active = ({name: some[rows] for name, some in part.items()} for part in (pool.columns, pool.active))
    return replace(pool, columns=columns, active=active)


def timed(function: Callable[[A], T], argument: A) -> tuple[T, float]:
    """What a function returns, and its seconds."""
    start = time.perf_counter()
    return function(argument), time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
