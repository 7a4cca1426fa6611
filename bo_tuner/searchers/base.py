"""What a searcher does: propose a config, hear how its trial went."""

from __future__ import annotations

from typing import Protocol

from bo_tuner.space import Config
from bo_tuner.study import Trial


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
