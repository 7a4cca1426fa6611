"""What the compiler says of every build: registers, stack and shared memory, which need no GPU to be known.

A folder holds a file of JSON lines for each kernel source, space version, architecture and Triton version, and a line
for each build, so that an interrupted compilation keeps what it has. ``bo-tuner compile`` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import KernelSpec
from bo_tuner.space import Columns, Config, Parameter, Pool
from bo_tuner.storage.alignment import config_codes, find_codes
from bo_tuner.storage.schema import device_from_json
from bo_tuner.storage.tables import read_frames, read_metadata
from bo_tuner.study import Status
from bo_tuner.task import Task


@dataclass(frozen=True)
class BuildFacts:
    """What one build needs; all zero for one that the compiler refuses.

    Args:
        n_registers: a thread.
        stack_bytes: a thread, for what was spilled.
        shared_bytes: a block.
    """

    n_registers: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0


FACTS = tuple(field.name for field in fields(BuildFacts))
#: Columns of a recorded table that hold them.
_RECORDED = {"n_registers": "n_registers", "stack_bytes": "n_spill_bytes", "shared_bytes": "shared_bytes"}


class CompiledFacts:
    """Reads and extends a folder of facts of one kernel.

    Args:
        folder: where the files are; made when something is added.
        spec: the kernel.
    """

    def __init__(self, folder: Path | str, spec: KernelSpec) -> None:
        self.folder, self.spec = Path(folder), spec
        self._dimensions = spec.shape_keys if spec.compiled_dimensions is None else spec.compiled_dimensions
        self._parameters = [parameter for parameter in spec.space.parameters if not parameter.launch]
        #: What tells a build from the others.
        self._keys = (*self._dimensions, *(parameter.name for parameter in self._parameters))
        self._read: dict[tuple[tuple[int, int], tuple[int, ...]], tuple[NDArray[np.int64], NDArray[np.float64]]] = {}

    def path(self, capability: tuple[int, int], triton: str) -> Path:
        """The file of an architecture and a version of Triton."""
        return self.folder / f"{self._prefix(capability)}{triton}.jsonl"

    def of_pool(self, pool: Pool) -> dict[str, NDArray[np.float64]]:
        """The facts of every config of a pool, each of length ``len(pool)``.

        Where several versions of Triton were asked, the newest one answers.

        Raises:
            UserError: a config has not been compiled, or a file cannot be read.
        """
        codes, values = self._known(pool.task)
        place = find_codes(codes, config_codes(self._parameters, pool.columns))
        if n_missing := int(np.sum(place < 0)):
            shape = " ".join(f"{key}={size}" for key, size in pool.task.shape.items())
            todo = f"bo-tuner compile {self.spec.name} {shape} --device {pool.task.device.key} --out {self.folder}"
            raise UserError(f"compiled: {n_missing} of {len(pool)} configs are not in {self.folder}; run: {todo}")
        return dict(zip(FACTS, values[place].T, strict=True))

    def missing(self, task: Task, triton: str) -> list[Config]:
        """One config for each build of a task that a version of Triton has not been asked for."""
        pool = self.spec.pool(task)
        codes = config_codes(self._parameters, pool.columns)
        known = {_key(line, self._keys) for line in _lines(self.path(task.device.capability, triton))}
        firsts = np.sort(np.unique(codes, return_index=True)[1])
        configs = [pool.config(int(row)) for row in firsts]
        return [config for config in configs if _key(self._identity(config, task), self._keys) not in known]

    def add(self, task: Task, triton: str, found: Iterable[tuple[Config, BuildFacts]]) -> None:
        """Append the facts of some configs of a task to the file of its device's architecture."""
        lines = [{**self._identity(config, task), **vars(facts)} for config, facts in found]
        self.extend(task.device.capability, triton, lines)

    def add_recorded(self, path: Path | str) -> int:
        """Add what the recorder of a table read of its configs; the number of new builds.

        Raises:
            UserError: the table cannot be read, or is of another source of the kernel.
        """
        metadata = read_metadata(path)
        if metadata["source_hash"] != self.spec.source_hash:
            raise UserError(f"{path}: source_hash: is of another source of {self.spec.name} than the one here")
        rows = read_frames(path, self.spec)[0]
        rows = rows[rows["status"].isin([Status.CORRECT.value, Status.COMPILE.value])]
        columns = {p.name: _filled(rows[p.name], p) for p in self._parameters}
        columns |= {key: rows[key].to_numpy() for key in self._dimensions}
        columns |= {name: rows[column].fillna(0).to_numpy(dtype=np.int64) for name, column in _RECORDED.items()}
        ordered = pd.DataFrame(columns).sort_values("n_registers", ascending=False, kind="stable")  # refusals last
        lines = ordered.drop_duplicates(list(self._keys)).to_dict("records")
        device = device_from_json(metadata["device"])
        return self.extend(device.capability, json.loads(metadata["versions"])["triton"], lines)

    def extend(self, capability: tuple[int, int], triton: str, lines: Iterable[Mapping[Any, Any]]) -> int:
        """Append lines that name a build and its facts, but for those that are known; the number of new ones."""
        path = self.path(capability, triton)
        path.parent.mkdir(parents=True, exist_ok=True)
        known = {_key(line, self._keys) for line in _lines(path)}
        n_before = len(known)
        with path.open("a", encoding="utf-8") as file:
            if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
                file.write("\n")  # a kill cut the last line short; readers drop it
            for line in lines:
                if (key := _key(line, self._keys)) not in known:
                    known.add(key)
                    file.write(json.dumps(dict(line)) + "\n")
        self._read.clear()
        return len(known) - n_before

    def _identity(self, config: Config, task: Task) -> dict[str, Any]:
        """What tells a build from the others: the dimensions and parameters that the compiler sees."""
        neutral = {p.name: _neutral(p) for p in self._parameters}
        dimensions = {key: task.shape[key] for key in self._dimensions}
        return dimensions | {name: config.get(name, value) for name, value in neutral.items()}

    def _known(self, task: Task) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Codes of the builds of a task's architecture and dimensions, and their facts, ``[n]`` and ``[n, 3]``."""
        own = {key: task.shape[key] for key in self._dimensions}
        at = (task.device.capability, tuple(own.values()))
        if at not in self._read:
            path = self._newest(task.device.capability)
            lines = [line for line in _lines(path) if all(line[key] == size for key, size in own.items())]
            columns: Columns = {p.name: np.array([line[p.name] for line in lines]) for p in self._parameters}
            codes = config_codes(self._parameters, columns) if lines else np.empty(0, dtype=np.int64)
            values = np.array([[line[name] for name in FACTS] for line in lines], dtype=np.float64)
            self._read[at] = codes, values.reshape(-1, len(FACTS))
        return self._read[at]

    def _newest(self, capability: tuple[int, int]) -> Path:
        prefix = self._prefix(capability)
        paths = sorted(self.folder.glob(f"{prefix}*.jsonl"), key=lambda path: _version(path.stem.removeprefix(prefix)))
        return paths[-1] if paths else self.path(capability, "")

    def _prefix(self, capability: tuple[int, int]) -> str:
        spec, arch = self.spec, f"sm_{capability[0]}{capability[1]}"
        return f"{spec.name}-v{spec.space_version}-{spec.source_hash or 'nosource'}-{arch}-triton"


def _filled(column: pd.Series, parameter: Parameter) -> NDArray[Any]:
    """A parameter's values, its neutral one where it has no effect."""
    return column.fillna(_neutral(parameter)).astype(type(parameter.values[0])).to_numpy()


def _neutral(parameter: Parameter) -> Any:
    return parameter.values[0] if parameter.neutral is None else parameter.neutral


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _key(line: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(line[key] for key in keys)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; one that a kill cut short is dropped, and a missing file has none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"compiled: {path}: cannot be read ({error})") from None
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
