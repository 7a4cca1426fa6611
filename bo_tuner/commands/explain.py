"""Explain the choice of a tuning run: what was expected, which sources and features decided, what was ruled out."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bo_tuner.commands.arguments import add_compiled, parse_kernel
from bo_tuner.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from bo_tuner.space import Pool
    from bo_tuner.study import Study, Trial
    from bo_tuner.surrogates.explanation import Contribution, Origin
    from bo_tuner.surrogates.meta_gp import MetaGP

#: Source tasks and features that are listed.
N_LISTED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("record", metavar="RECORD", type=Path, help="what bo-tuner tune wrote with --json")
    parser.add_argument("--prior", metavar="FILE", type=Path, help="prior of the run (default: the one shipped)")
    add_compiled(parser)
    parser.add_argument(
        "--kernel", metavar="NAME", help="package.module of the spec, for a kernel that is not built in"
    )


def run(arguments: argparse.Namespace) -> int:
    """Fit the model again to the recorded trials and print what it says; needs no GPU."""
    from bo_tuner.commands.locate import compiled_facts
    from bo_tuner.commands.records import read_record, study_of_record
    from bo_tuner.commands.screen import console
    from bo_tuner.commands.space import REJECTED_TITLE, rejected_table
    from bo_tuner.kernels import kernel_names
    from bo_tuner.pretrained import load_prior
    from bo_tuner.surrogates.explanation import feature_differences, origin

    record = read_record(arguments.record)
    # A record names no module: what is imported is for the user to say.
    if not arguments.kernel and record["kernel"] not in kernel_names():
        raise UserError(f"--kernel: is needed, {record['kernel']} is no kernel of bo_tuner's own")
    spec = parse_kernel(arguments.kernel or record["kernel"])
    study = study_of_record(arguments.record, record, spec)
    prior = load_prior(spec, arguments.prior, compiled=compiled_facts(arguments.compiled, spec))
    pool, out = spec.pool(study.task), console()

    def show(title: str, table: Table) -> None:
        out.print(f"\n{title}", highlight=False, soft_wrap=True)
        out.print(table, highlight=False)

    if not study.method.startswith("meta_gp"):
        note = f"the trials were chosen by {study.method}; what follows is what meta_gp's model makes of them"
        print(f"bo-tuner: note: {note}", file=sys.stderr)
    out.print(f"{study.task.key}: {len(study.trials)} trials of {study.method}, seed {study.seed}", highlight=False)
    show(*_expected(prior, pool, study))
    ranked = study.ranked()
    if ranked:
        show(*_sources(origin(prior, pool, study.trials, ranked[0].config), ranked[0]))
    else:
        out.print("no trial was correct: no config was chosen")
    if len(ranked) > 1:
        found = feature_differences(prior, pool, ranked[0].config, ranked[1].config)
        show(*_features(found, prior, pool, ranked[0], ranked[1]))
    show(REJECTED_TITLE, rejected_table(pool))
    return 0


def _expected(prior: MetaGP, pool: Pool, study: Study) -> tuple[str, Table]:
    """Expected against measured, a line a trial."""
    from bo_tuner.commands.ledger import config_text, microseconds
    from bo_tuner.surrogates.explanation import predictions

    best = study.best
    title = "what the model expected of each trial, given the earlier ones (± one standard deviation)"
    table = _table("#", "expected", "±", "measured", "off by")
    table.add_column("config", overflow="fold")
    for trial, expected in zip(study.trials, predictions(prior, pool, study.trials), strict=True):
        result = trial.measurement
        # Before a trial is correct there is no time to compare with: the prior knows ratios only.
        foreseen, spread, off = f"{expected.efficiency:.0%} of the best", "–", "–"
        if expected.time_us is not None and expected.log_sd is not None:
            foreseen, spread = microseconds(expected.time_us), f"{math.expm1(expected.log_sd):.1%}"
            off = f"{result.time_us / expected.time_us - 1:+.1%}" if result.ok else "–"
        measured = microseconds(result.time_us) if result.ok else result.status.value
        chosen = best is not None and trial.config == best.config
        cells = (str(trial.index + 1), foreseen, spread, measured, off, config_text(trial))
        table.add_row(*cells, style="bold" if chosen else None)
    return title, table


def _sources(found: Origin, chosen: Trial) -> tuple[str, Table]:
    """The source tasks that moved the chosen config's expected speed most, and what else did."""
    total = sum(abs(one.log_speed) for one in found.sources) or 1.0
    title = f"what moved the expected speed of the chosen config (trial {chosen.index + 1}) from the prior mean"
    table = _table("source task", "makes it faster by", "share", left=1)
    listed = sorted(found.sources, key=lambda one: -abs(one.log_speed))[:N_LISTED]
    for one in listed:
        table.add_row(one.name, _percent(one.log_speed), f"{abs(one.log_speed) / total:.0%}")
    rest = [one for one in found.sources if one not in listed]
    share = sum(abs(one.log_speed) for one in rest) / total
    table.add_row(f"the other {len(rest)} source tasks", _percent(sum(one.log_speed for one in rest)), f"{share:.0%}")
    table.add_section()
    table.add_row("all source tasks", _percent(sum(one.log_speed for one in found.sources)), "100%")
    table.add_row("likeness of parameters, its own readings included", _percent(found.parameters), "")
    table.add_row("level of the whole task", _percent(found.level), "")
    return title, table


def _features(found: list[Contribution], prior: MetaGP, pool: Pool, chosen: Trial, other: Trial) -> tuple[str, Table]:
    """The features by which the prior mean tells the chosen config from the runner-up."""
    mean = prior.prior_mean(pool)
    total = float(mean[pool.index(chosen.config)] - mean[pool.index(other.config)])
    slower = other.measurement.time_us / chosen.measurement.time_us - 1
    title = (
        f"chosen (trial {chosen.index + 1}) against runner-up (trial {other.index + 1}, measured {slower:.1%} slower):"
        f" what the prior mean makes of their features"
    )
    table = _table("feature", "chosen", "runner-up", "makes the chosen faster by", left=1)
    for one in found[:N_LISTED]:
        table.add_row(one.name, *(f"{value:.4g}" for value in one.values), _percent(one.log_speed))
    rest = found[N_LISTED:]
    if rest:
        label = f"{len(rest)} other features that differ"
        table.add_row(label, "", "", _percent(sum(one.log_speed for one in rest)))
    table.add_section()
    table.add_row("all", "", "", _percent(total))
    return title, table


def _table(*columns: str, left: int = 0) -> Table:
    """A table whose first ``left`` columns hold words and whose others hold numbers."""
    from rich.table import Table

    table = Table()
    for at, name in enumerate(columns):
        table.add_column(name, justify="left" if at < left else "right", no_wrap=True)
    return table


def _percent(log_speed: float) -> str:
    return f"{math.expm1(log_speed):+.2%}"
