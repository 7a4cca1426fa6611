"""Tune a kernel for one shape, on this machine's GPU or by replay of recorded tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bo_tuner.commands.arguments import (
    DEFAULT_DEVICE,
    add_device,
    add_dimensions,
    add_kernel,
    add_search,
    add_tables,
    check_method,
    check_output,
    natural,
    parse_dimensions,
    parse_kernel,
    share,
)
from bo_tuner.errors import UserError

if TYPE_CHECKING:
    from bo_tuner.evaluators.base import Evaluator
    from bo_tuner.kernels import KernelSpec
    from bo_tuner.storage.tables import TaskTable
    from bo_tuner.study import Study
    from bo_tuner.surrogates.meta_gp import MetaGP
    from bo_tuner.task import Task

#: Configs compiled ahead of the first trial, the prior's favourites.
N_PREFETCHED = 16
#: Where the trials of a live run are until it is complete.
UNFINISHED = Path("outputs", "unfinished")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel(parser)
    add_dimensions(parser)
    add_search(parser)
    add_tables(parser)
    add_device(parser, "recorded device to replay, or part of this machine's GPU such as nvidia_h200_72_sms")
    parser.add_argument("--replay", action="store_true", help="answer trials from recorded tables; needs no GPU")
    parser.add_argument("--seed", metavar="S", type=natural, default=0, help="of the searcher (default: 0)")
    parser.add_argument(
        "--min-gain",
        metavar="SHARE",
        type=share,
        default=0.0,
        help="stop when the next trial is expected to save less of the best time, e.g. 0.002 (default: 0, never)",
    )
    parser.add_argument(
        "--confirm",
        metavar="N",
        type=natural,
        default=0,
        help="of the budget, spend the last N trials on timing the N best configs again (default: 0)",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the study there")
    parser.add_argument("--quiet", action="store_true", help="no progress, no ledger: only the chosen config")


def run(arguments: argparse.Namespace) -> int:
    """Tune, then report; after an interrupt, report what was measured and return 130."""
    from bo_tuner.task import device_named

    spec = parse_kernel(arguments.kernel)
    shape = parse_dimensions(arguments.dimensions, spec)
    # What is wrong with the arguments is told before tables are read or a GPU is opened.
    spec.task(shape, device_named(arguments.device or DEFAULT_DEVICE))
    check_method(arguments.method)
    check_output(arguments.json)
    if arguments.confirm >= arguments.trials:
        raise UserError(f"--confirm: {arguments.confirm} is not below the budget of {arguments.trials} trials")
    study, interrupted = _replay(arguments, spec, shape) if arguments.replay else _live(arguments, spec, shape)
    if interrupted:
        print(f"bo-tuner: interrupted; above is what {len(study.trials)} trials found", file=sys.stderr)
        return 130
    n, n_configs = len(study.trials), len(spec.pool(study.task))
    if study.n_saved:
        why = f"stopped after {n} of {arguments.trials} trials, another promises less than {arguments.min_gain:.2%}"
        print(f"bo-tuner: note: {why}", file=sys.stderr)
    elif n_configs <= n < arguments.trials:
        print(f"bo-tuner: note: all {n_configs} valid configs were tried, fewer than --trials", file=sys.stderr)
    return 0


def _replay(arguments: argparse.Namespace, spec: KernelSpec, shape: dict[str, int]) -> tuple[Study, bool]:
    from bo_tuner.commands.locate import EVERY_SPLIT, prior_of_method, read_split, tables_root
    from bo_tuner.evaluators.replay import ReplayEvaluator, table_of_shape

    tables = read_split(tables_root(arguments.tables), spec, arguments.device, EVERY_SPLIT)
    table = table_of_shape(spec, tables, shape)
    prior = prior_of_method(arguments.method, spec, arguments.prior, arguments.compiled)
    if prior is not None and prior.has_seen(table.task):
        note = "the prior was trained on this very shape, so the efficiency says nothing of unseen shapes"
        print(f"bo-tuner: note: {note}", file=sys.stderr)
    study, interrupted = _search(arguments, spec, table.task, ReplayEvaluator(table), prior)
    _report(arguments, study, table)
    return study, interrupted


def _live(arguments: argparse.Namespace, spec: KernelSpec, shape: dict[str, int]) -> tuple[Study, bool]:
    from bo_tuner.commands.locate import prior_of_method
    from bo_tuner.evaluators.journal import JournalEvaluator
    from bo_tuner.evaluators.live import LiveEvaluator, gpu_is_there
    from bo_tuner.task import device_named, known_devices

    if not gpu_is_there():
        raise UserError("--replay: is needed here, since this machine has no CUDA GPU to tune on")
    part = device_named(arguments.device) if arguments.device else None
    whole = part is None or part.key in known_devices()
    with LiveEvaluator(None if part is None or whole else part.n_sms) as evaluator:
        # While the timing process starts.
        prior = prior_of_method(arguments.method, spec, arguments.prior, arguments.compiled)
        if part is not None and evaluator.device.key != part.key:
            raise UserError(f"--device: {part.key} is not this machine's GPU, {evaluator.device.key}")
        task = spec.task(shape, evaluator.device)
        journal = _journal(arguments, spec, task, evaluator.open(task))
        if prior is not None:
            if not arguments.quiet:
                print(f"compiling the prior's {N_PREFETCHED} favourites ahead of the trials", file=sys.stderr)
            evaluator.prefetch(prior.favourites(spec.pool(task), N_PREFETCHED))
        study, interrupted = _search(arguments, spec, task, journal, prior)
        _report(arguments, study, baselines_us=evaluator.baselines_us)
    if isinstance(journal, JournalEvaluator) and not interrupted:
        journal.finish()
    return study, interrupted


def _journal(arguments: argparse.Namespace, spec: KernelSpec, task: Task, evaluator: Evaluator) -> Evaluator:
    """Keep every trial on disk until the run is complete, so that a killed one goes on where it stopped."""
    from bo_tuner.evaluators.journal import JournalEvaluator

    run: dict[str, str | int] = {"task": task.key, "method": arguments.method, "seed": arguments.seed}
    path = UNFINISHED / f"{task.key}-{arguments.method}-seed{arguments.seed}.jsonl"
    try:
        journal = JournalEvaluator(evaluator, path, {**run, "source_hash": spec.source_hash})
    except OSError as error:
        print(f"bo-tuner: note: trials are not kept on disk, {error}", file=sys.stderr)
        return evaluator
    if journal.n_resumed:
        print(f"bo-tuner: note: going on after {journal.n_resumed} trials kept in {path}", file=sys.stderr)
    return journal


def _search(
    arguments: argparse.Namespace, spec: KernelSpec, task: Task, evaluator: Evaluator, prior: MetaGP | None
) -> tuple[Study, bool]:
    """Run the loop; an interrupt ends it and keeps the finished trials."""
    from bo_tuner.commands.ledger import Progress
    from bo_tuner.searchers import make_searcher
    from bo_tuner.study import Study
    from bo_tuner.tuner import assess, tune

    method, seed = arguments.method, arguments.seed
    searcher = make_searcher(method, spec, task, seed=seed, prior=prior)
    progress = Progress(arguments.trials, quiet=arguments.quiet)
    how = {"method": method, "seed": seed, "min_gain": arguments.min_gain, "confirm": arguments.confirm}
    try:
        study = tune(task, searcher, evaluator, arguments.trials, callbacks=[progress], **how)
    except KeyboardInterrupt:
        return assess(Study(task, method, seed, tuple(progress.trials)), searcher), True
    finally:
        progress.stop()
    return assess(study, searcher), False


def _report(
    arguments: argparse.Namespace,
    study: Study,
    table: TaskTable | None = None,
    baselines_us: Mapping[str, float] | None = None,
) -> None:
    from bo_tuner.commands.ledger import print_study
    from bo_tuner.commands.records import study_record

    record = study_record(study, table, baselines_us)
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print_study(study, record, quiet=arguments.quiet)
