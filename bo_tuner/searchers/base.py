"""What a searcher does: propose a config, hear how its trial went."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from bo_tuner.space import Config
from bo_tuner.study import Distance, Trial


class SpaceExhausted(Exception):
    """Every config has been tried."""


class Searcher(Protocol):
    """Proposes configs one after another and never the same twice."""

    def ask(self) -> Config:
        """The config to try next; asking twice without ``tell`` gives the same config.

        Raises:
            SpaceExhausted: there is none left.
        """
        ...

    def tell(self, trial: Trial) -> None:
        """Hear the result of a config, asked for or not."""
        ...


@runtime_checkable
class Foresighted(Protocol):
    """A searcher that knows what another trial promises."""

    def expected_gain(self) -> float:
        """Share of the best time so far that the next trial is expected to save; infinite before one is correct."""
        ...


@runtime_checkable
class SelfAssessing(Protocol):
    """A searcher that knows how sure it is."""

    def expected_distance(self, config: Config) -> Distance | None:
        """How far a tried config is thought to be from the best of all; None where that cannot be told."""
        ...


@runtime_checkable
class Predicting(Protocol):
    """A searcher that says beforehand what a trial will read."""

    def predict(self, config: Config) -> tuple[float, float] | None:
        """Mean and standard deviation of the log of a config's next reading in µs; None before a trial is correct."""
        ...
