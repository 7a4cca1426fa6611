"""Facts of the compiler: which builds they tell apart, what a folder keeps, what is said when something lacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bo_tuner.errors import UserError
from bo_tuner.kernels import load_kernel
from bo_tuner.storage.compiled import BuildFacts, CompiledFacts
from bo_tuner.storage.tables import read_frames, read_metadata, write_tables
from bo_tuner.task import device_named
from tests.toy_kernel import ToySpec, write_toy

SPEC = ToySpec()
H200 = device_named("nvidia_h200")
TASK = SPEC.task({"rows": 1000, "cols": 512}, H200)
POOL = SPEC.pool(TASK)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "toy" / "nvidia_h200" / "train.parquet", SPEC, 6, 1)


def test_a_recorded_table_tells_the_facts_of_its_configs(table: Path, tmp_path: Path) -> None:
    facts = CompiledFacts(tmp_path / "facts", SPEC)
    n_new = facts.add_recorded(table)
    rows = read_frames(table, SPEC)[0]
    task = SPEC.task({key: int(rows[key][0]) for key in SPEC.shape_keys}, H200)
    told = facts.of_pool(SPEC.pool(task))
    np.testing.assert_array_equal(told["n_registers"], 32 + 8 * SPEC.pool(task).columns["stages"])
    np.testing.assert_array_equal(told["shared_bytes"], SPEC.shared_bytes(SPEC.pool(task).columns, task))
    assert facts.add_recorded(table) == 0
    text = facts.path((9, 0), "3.6.0").read_text(encoding="utf-8")
    assert text.count("\n") == n_new


@pytest.mark.parametrize("kernel", ["gemm", "attention"])
def test_a_build_is_told_from_another_as_the_compiler_does(kernel: str) -> None:
    spec = load_kernel(kernel)
    facts, builds = CompiledFacts("nowhere", spec), {}
    for shape in spec.sample_shapes(6, seed=77):
        task = spec.task(shape, H200)
        pool = spec.pool(task)
        for config in (pool.config(row) for row in range(0, len(pool), 23)):
            identity = tuple(facts._identity(config, task).items())
            key = spec.program.build(config, task).key
            assert builds.setdefault(identity, key) == key
    assert len(set(builds.values())) == len(builds)


def test_without_a_word_every_dimension_counts() -> None:
    class Silent(ToySpec):
        compiled_dimensions = None

    of_silent = CompiledFacts("nowhere", Silent())._identity(POOL.config(0), TASK)
    assert of_silent.items() >= TASK.shape.items()
    assert not CompiledFacts("nowhere", SPEC)._identity(POOL.config(0), TASK).keys() & TASK.shape.keys()


def test_what_lacks_is_named_with_the_command_that_adds_it(tmp_path: Path) -> None:
    facts = CompiledFacts(tmp_path, SPEC)
    wanted = rf"compiled: {len(POOL)} of {len(POOL)} configs .* bo-tuner compile toy rows=1000 cols=512 --device nvidia"
    with pytest.raises(UserError, match=wanted):
        facts.of_pool(POOL)
    first, *rest = facts.missing(TASK, "3.6.0")
    facts.add(TASK, "3.6.0", [(first, BuildFacts(40))])
    assert facts.missing(TASK, "3.6.0") == rest
    assert first in facts.missing(TASK, "3.7.0")


def test_what_a_kill_cut_short_is_compiled_again(tmp_path: Path) -> None:
    facts = CompiledFacts(tmp_path, SPEC)
    configs = facts.missing(TASK, "3.6.0")
    facts.add(TASK, "3.6.0", [(config, BuildFacts(40, 8, 1024)) for config in configs])
    path = facts.path((9, 0), "3.6.0")
    path.write_bytes(path.read_bytes()[:-20])
    assert facts.missing(TASK, "3.6.0") == configs[-1:]
    facts.add(TASK, "3.6.0", [(configs[-1], BuildFacts(41))])
    told = CompiledFacts(tmp_path, SPEC).of_pool(POOL)
    assert sorted(set(told["n_registers"])) == [40, 41]


def test_the_newest_compiler_answers(tmp_path: Path) -> None:
    facts = CompiledFacts(tmp_path, SPEC)
    for at, version in enumerate(("3.9.1", "3.10.0", "3.6.0")):
        facts.add(TASK, version, [(config, BuildFacts(40 + at)) for config in facts.missing(TASK, version)])
    assert set(facts.of_pool(POOL)["n_registers"]) == {41}


def test_a_table_of_another_source_is_refused(table: Path, tmp_path: Path) -> None:
    rows, tasks = read_frames(table, SPEC)
    write_tables(table, SPEC, rows, tasks, {**read_metadata(table), "source_hash": "other"})
    with pytest.raises(UserError, match="source_hash: is of another source of toy"):
        CompiledFacts(tmp_path, SPEC).add_recorded(table)
