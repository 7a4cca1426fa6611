"""The report of one tuning run: progress while it runs, the ledger of every trial after it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bo_tuner.commands.screen import Bar, console
from bo_tuner.space import config_key

if TYPE_CHECKING:
    from rich.table import Table

    from bo_tuner.study import Distance, Study, Trial


class Progress:
    """A callback of ``tune`` that keeps the trials, for the case of an interrupt, and shows how the run goes."""

    def __init__(self, n_trials: int, *, quiet: bool) -> None:
        self.trials: list[Trial] = []
        self._best_us = math.inf
        self._bar = Bar("trial", n_trials, quiet=quiet)

    def __call__(self, trial: Trial) -> None:
        """Hear of a finished trial."""
        self.trials.append(trial)
        result = trial.measurement
        self._best_us = min(self._best_us, result.time_us)
        outcome = microseconds(result.time_us) if result.ok else result.status.value
        self._bar.step(f"{outcome}, best {microseconds(self._best_us)}")

    def stop(self) -> None:
        """Take the progress down."""
        self._bar.stop()


def ledger(study: Study) -> Table:
    """Every trial, failures too."""
    from rich.table import Table

    table = Table(title="trials", title_justify="left")
    for name in ("#", "status", "time", "best so far", "compile"):
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
    table.add_column("config", overflow="fold")
    best = study.best
    for trial, incumbent in zip(study.trials, study.incumbents(), strict=True):
        result = trial.measurement
        table.add_row(
            str(trial.index + 1),
            result.status.value,
            microseconds(result.time_us),
            microseconds(incumbent.measurement.time_us if incumbent else math.inf),
            f"{result.compile_s:.1f} s",
            config_text(trial) + (f" ({result.message})" if result.message else ""),
            style="bold" if best is not None and trial.config == best.config else None,
        )
    return table


def config_text(trial: Trial) -> str:
    """A config with spaces, so that a table can break it."""
    return config_key(trial.config).replace(",", " ")


def distance_text(distance: Distance) -> str:
    """How far the chosen config is thought to be from the best, in words."""
    expected = f"{distance.mean:.1%} slower than the best of all {distance.n_configs:,} configs is expected"
    bound = f"with 95% chance less than {distance.high:.1%}"
    return f"{expected}, {bound}" + ("" if distance.calibrated else " (not calibrated on source tasks)")


def microseconds(value: float) -> str:
    """A time, or a dash where there is none."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.2f} µs" if value < 1000 else f"{value / 1000:.3f} ms"


def print_study(study: Study, record: Mapping[str, Any], *, quiet: bool) -> None:
    """Print the ledger, then the chosen config, its time and, from a replay, its efficiency.

    Args:
        study: the run.
        record: the same as ``records.study_record`` tells it.
        quiet: print the chosen config and its time only.
    """
    out = console()

    def line(name: str, text: str, style: str | None = None) -> None:
        out.print(f"{name:<15}{text}", style=style, highlight=False, soft_wrap=True)

    if not quiet:
        out.print(ledger(study), highlight=False)
    best = study.best
    if best is None:
        out.print("no trial was correct: there is no config to recommend")
        return
    line("chosen config", config_text(best), "bold")
    numbers = [str(trial.index + 1) for trial in study.trials if trial.config == best.config]
    where = f"in trial {numbers[0]}" if len(numbers) == 1 else f"over trials {' and '.join(numbers)}"
    line("its time", f"{microseconds(best.measurement.time_us)} {where}")
    if "efficiency" in record:
        final, fastest = microseconds(record["final_us"]), microseconds(record["table_best_us"])
        share = f"{record['efficiency']:.1%} of the best of all {record['n_configs']:,} configs"
        line("efficiency", f"{share} (final times {final} and {fastest})")
    if (distance := study.distance) is not None:
        line("distance", distance_text(distance))
    for library, time_us in record["baselines_us"].items():
        line("library", f"{library}: {microseconds(time_us)}")
    if not quiet:
        saved = f", {study.n_saved} saved since another promised too little" if study.n_saved else ""
        line(
            "paid",
            f"{len(study.trials)} trials{saved};"
            f" {record['compile_s']:.1f} s compiling, {record['ask_s']:.2f} s choosing",
        )
