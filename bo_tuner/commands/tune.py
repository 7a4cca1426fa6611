"""Tune a kernel for one shape, on this machine's GPU or by replay of recorded tables."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bo_tuner.commands.arguments import (
    add_device,
    add_dimensions,
    add_kernel,
    add_search,
    add_tables,
    natural,
    parse_device,
    parse_dimensions,
    parse_kernel,
)
from bo_tuner.errors import UserError

if TYPE_CHECKING:
    from bo_tuner.evaluators.base import Evaluator
    from bo_tuner.kernels import KernelSpec
    from bo_tuner.storage.tables import TaskTable
    from bo_tuner.study import Study
    from bo_tuner.task import Task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel(parser)
    add_dimensions(parser)
    add_search(parser)
    add_tables(parser)
    add_device(parser, "recorded device to replay (default: nvidia_h200), or what to call this machine's GPU")
    parser.add_argument("--replay", action="store_true", help="answer trials from recorded tables; needs no GPU")
    parser.add_argument("--seed", metavar="S", type=natural, default=0, help="of the searcher (default: 0)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the study there")
    parser.add_argument("--quiet", action="store_true", help="no progress, no ledger: only the chosen config")


def run(arguments: argparse.Namespace) -> int:
    """Tune, then report; after an interrupt, report what was measured and return 130."""
    spec = parse_kernel(arguments.kernel)
    shape = parse_dimensions(arguments.dimensions, spec)
    table = None
    if arguments.replay:
        table, evaluator = _replay(arguments, spec, shape)
        task = table.task
    else:
        task, evaluator = _live(arguments, spec, shape)
    study, interrupted = _search(arguments, spec, task, evaluator)
    _report(arguments, study, table)
    if interrupted:
        print(f"bo-tuner: interrupted after {len(study.trials)} trials; above is what they found", file=sys.stderr)
        return 130
    if len(study.trials) < arguments.trials:
        print(f"bo-tuner: note: all {len(study.trials)} valid configs were tried, fewer than --trials", file=sys.stderr)
    return 0


def _replay(arguments: argparse.Namespace, spec: KernelSpec, shape: dict[str, int]) -> tuple[TaskTable, Evaluator]:
    from bo_tuner.commands.locate import read_split, tables_root
    from bo_tuner.evaluators.replay import ReplayEvaluator, table_of_shape

    device = parse_device(arguments)
    spec.task(shape, device)  # a wrong shape is told before tables are looked for
    tables = read_split(tables_root(arguments.tables), spec, device, "*")
    table = table_of_shape(spec, tables, shape)
    return table, ReplayEvaluator(table)


def _live(arguments: argparse.Namespace, spec: KernelSpec, shape: dict[str, int]) -> tuple[Task, Evaluator]:
    from bo_tuner.task import device_named

    if arguments.device:
        device_named(arguments.device)
    import torch

    if not torch.cuda.is_available():
        raise UserError("--replay: is needed here, since this machine has no CUDA GPU to tune on")
    from bo_tuner.evaluators.live import LiveEvaluator

    task = spec.task(shape, device_named(arguments.device or torch.cuda.get_device_name()))
    return task, LiveEvaluator(task)


def _search(arguments: argparse.Namespace, spec: KernelSpec, task: Task, evaluator: Evaluator) -> tuple[Study, bool]:
    from bo_tuner.commands.ledger import Progress
    from bo_tuner.searchers import make_searcher
    from bo_tuner.study import Study
    from bo_tuner.tuner import tune

    searcher = make_searcher(arguments.method, spec, task, seed=arguments.seed, prior=arguments.prior)
    progress = Progress(arguments.trials, quiet=arguments.quiet)
    method, seed = arguments.method, arguments.seed
    try:
        study = tune(task, searcher, evaluator, arguments.trials, method=method, seed=seed, callbacks=[progress])
    except KeyboardInterrupt:
        return Study(task, method, seed, tuple(progress.trials)), True
    finally:
        progress.stop()
    return study, False


def _report(arguments: argparse.Namespace, study: Study, table: TaskTable | None) -> None:
    from bo_tuner.commands.ledger import print_study
    from bo_tuner.commands.records import study_record

    record = study_record(study, table)
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print_study(study, record, quiet=arguments.quiet)
