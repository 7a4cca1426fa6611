"""What the commands print: one console, and progress that suits who watches.

A terminal gets a bar that vanishes; a pipe or file gets plain lines; ``--quiet`` gets nothing. Progress goes to stderr.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console

#: Tables are wide; a pipe or file has no width of its own, and 80 columns would cut configs in two.
PLAIN_WIDTH = 140


@functools.cache
def console() -> Console:
    """The console on standard output; plain text when that is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


class Bar:
    """Steps of one piece of work, shown as a bar, as plain lines, or not at all.

    Args:
        name: what is done.
        total: number of steps.
        quiet: show nothing.
        n_lines: print about so many plain lines, however many steps there are; 0 for a line a step.
    """

    def __init__(self, name: str, total: int, *, quiet: bool = False, n_lines: int = 0) -> None:
        self._every = max(total // n_lines, 1) if n_lines else 1
        self._name, self._total, self._done = name, total, 0
        self._plain = not quiet and not sys.stderr.isatty()
        self._bar: Any = None
        if not quiet and not self._plain:
            self._bar = _rich_bar()
            self._bar.start()
            self._row = self._bar.add_task(name, total=total, note="")

    def step(self, note: str) -> None:
        """One step is done; ``note`` says how it went."""
        self._done += 1
        if self._plain and (self._done % self._every == 0 or self._done == self._total):
            print(f"{self._name} {self._done}/{self._total}: {note}", file=sys.stderr, flush=True)
        if self._bar is not None:
            self._bar.update(self._row, advance=1, note=note)

    def hear(self, note: str, share: float) -> None:
        """One step is done, told as the protocol does; the share follows from the count."""
        self.step(note)

    def stop(self) -> None:
        """Take the bar down."""
        if self._bar is not None:
            self._bar.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Shares:
    """Hears of stages of unknown length by the share that is done: a bar a stage, plain lines, or nothing.

    Args:
        quiet: show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._plain = not quiet and not sys.stderr.isatty()
        self._bar: Any = None if quiet or self._plain else _rich_bar()
        self._rows: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def hear(self, what: str, share: float) -> None:
        """A share, from 0 to 1, of a stage is done."""
        if self._plain:
            print(f"{what} {share:.0%}", file=sys.stderr, flush=True)
        if self._bar is not None:
            if what not in self._rows:
                self._rows[what] = self._bar.add_task(what, total=100, note="")
            self._bar.update(self._rows[what], completed=round(100 * share))


class StageListener:
    """Hears a collection, one bar a stage. Timing tells a line a task, compiling with its thousands of steps a few."""

    def __init__(self) -> None:
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins."""
        self.__exit__()
        self._bar = Bar(name, total, n_lines=20 if total > 1000 else 0)

    def step(self, note: str) -> None:
        """One step of the stage is done."""
        if self._bar is not None:
            self._bar.step(note)


def _rich_bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *times)
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True), transient=True)
