"""A kernel of the user's own: two files, found by module name, known to every command and in every process."""

from __future__ import annotations

import pytest

from bo_tuner.cli import main
from bo_tuner.evaluators.compiling import CompilePool
from bo_tuner.kernels import load_kernel, module_of
from bo_tuner.study import Status
from bo_tuner.task import device_named
from tests.interpreted import relative_errors

MODULE = "tests.third_kernel"


def test_it_is_known_by_its_module_and_then_by_its_name() -> None:
    spec = load_kernel(MODULE)
    assert load_kernel("softmax") is spec
    assert module_of("softmax") == MODULE


def test_it_computes_what_its_reference_does() -> None:
    cases = [
        ({"rows": 5, "cols": 72}, {"rows_at_once": 4, "block": 64, "num_warps": 4}),
        ({"rows": 1, "cols": 1000}, {"rows_at_once": 1, "block": 256, "num_warps": 8}),
    ]
    assert all(error < 5e-3 for error in relative_errors(MODULE, cases))


def test_it_compiles_in_another_process() -> None:
    spec = load_kernel(MODULE)
    task = spec.task({"rows": 64, "cols": 512}, device_named("nvidia_h200"))
    pool = CompilePool(n_workers=1)
    try:
        (result,) = pool.compile([(task, spec.default_config(task))])
    finally:
        pool.close()
    assert result.status is Status.CORRECT, result.message


def test_the_commands_know_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["space", MODULE, "rows=4096", "cols=1024"]) == 0
    assert "rows_at_once" in capsys.readouterr().out
    assert main(["space", MODULE, "rows=4096", "cols=7"]) == 2
    assert "cols: 7 is not a multiple of 8" in capsys.readouterr().err
