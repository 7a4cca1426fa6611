"""Trials that outlive their process: each measurement is on disk before the next one begins.

A searcher with the same seed asks for the same configs when it is told the same results. So a run that was killed goes
on by being run again: as long as the configs agree, the journal answers in place of the GPU.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from bo_tuner.evaluators.base import Evaluator
from bo_tuner.space import Config
from bo_tuner.study import Measurement, Status


class JournalEvaluator:
    """Writes down what another evaluator measures, and first repeats what an earlier run wrote.

    A last line that a kill cut short is dropped. A journal of another run (other ``identity``) is started anew.

    Args:
        inner: what measures.
        path: the journal, JSON lines; its folder is made.
        identity: what makes two runs the same, for example task, method, seed and the hash of the kernel's source.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, inner: Evaluator, path: Path, identity: Mapping[str, str | int]) -> None:
        self._inner, self.path, self._identity = inner, path, dict(identity)
        self._earlier = _read(path, self._identity)
        self._n_repeated = 0
        self.n_resumed = len(self._earlier)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._keep(self.n_resumed)

    def evaluate(self, config: Config) -> Measurement:
        """Repeat the earlier run's measurement if it is of this config, else measure and write it down."""
        if self._n_repeated < len(self._earlier):
            earlier, result = self._earlier[self._n_repeated]
            if earlier == dict(config):
                self._n_repeated += 1
                return result
            self._keep(self._n_repeated)  # the search took another way: nothing after this fits
        result = self._inner.evaluate(config)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{_line(config, result)}\n")
            file.flush()
            os.fsync(file.fileno())
        return result

    def finish(self) -> None:
        """The run is complete: there is nothing left to resume."""
        self.path.unlink(missing_ok=True)

    def _keep(self, n: int) -> None:
        """Write the first ``n`` earlier measurements as a whole file; a torn last line goes."""
        self._earlier = self._earlier[:n]
        lines = [json.dumps(self._identity), *(_line(config, result) for config, result in self._earlier)]
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        partial.replace(self.path)


def _line(config: Config, result: Measurement) -> str:
    return json.dumps(
        {
            "config": dict(config),
            "status": result.status.value,
            "readings_us": result.readings_us,
            "compile_s": result.compile_s,
            "message": result.message,
        }
    )


def _read(path: Path, identity: Mapping[str, str | int]) -> list[tuple[dict[str, int | bool | str], Measurement]]:
    """The whole lines of a journal of this run; none if it is missing, damaged at its head, or another run's."""
    try:
        head, *lines = path.read_text(encoding="utf-8").split("\n")
        if json.loads(head) != dict(identity):
            return []
    except (OSError, ValueError):
        return []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
            readings = tuple(entry["readings_us"])
            result = Measurement(Status(entry["status"]), readings, entry["compile_s"], entry["message"])
            found.append((entry["config"], result))
        except (ValueError, KeyError, TypeError):
            break
    return found
