"""Compiling in parallel: equal builds once, failures as values, a deadline that holds."""

from __future__ import annotations

import pytest

from bo_tuner.evaluators.compiling import CompilePool, CompileResult, build_facts, compile_build
from bo_tuner.kernels import load_kernel
from bo_tuner.space import Config
from bo_tuner.study import Status
from bo_tuner.task import device_named

SPEC = load_kernel("gemm")
TASK = SPEC.task({"M": 256, "N": 512, "K": 256}, device_named("nvidia_h200"))


def _configs(n: int) -> list[Config]:
    """Configs that differ in launch keys only, ``n`` of them."""
    pool = SPEC.pool(TASK)
    key = SPEC.program.build(pool.config(0), TASK).key
    same = [config for config in pool if SPEC.program.build(config, TASK).key == key]
    assert len(same) >= n
    return same[:n]


def test_equal_builds_compile_once_and_keep_their_order() -> None:
    pool, done = CompilePool(n_workers=1), list[CompileResult]()
    try:
        results = pool.compile([(TASK, config) for config in _configs(2)], done.append)
    finally:
        pool.close()
    assert len(results) == 2
    assert len(done) == 1
    assert results[0].status is Status.CORRECT
    assert results[0].compile_s > 0


def test_what_was_compiled_is_remembered_with_its_time() -> None:
    pool, done = CompilePool(n_workers=1), list[CompileResult]()
    try:
        first = pool.compile([(TASK, _configs(1)[0])], done.append)
        again = pool.compile([(TASK, _configs(1)[0])], done.append)
    finally:
        pool.close()
    assert again == first
    assert len(done) == 1


def test_an_overdue_compilation_is_a_timeout() -> None:
    pool = CompilePool(n_workers=1, deadline_s=0.0)
    try:
        (result,) = pool.compile([(TASK, _configs(1)[0])])
    finally:
        pool.close()
    assert result.status is Status.TIMEOUT
    assert "over 0 s" in result.message


def test_what_the_compiler_refuses_is_a_value() -> None:
    impossible = {**_configs(1)[0], "block_k": 48}  # no power of two
    compiled = compile_build(SPEC.program.build(impossible, TASK), (9, 0))
    assert not compiled.ok
    assert "\n" not in compiled.message
    assert compiled.message


def test_resources_are_read_without_a_gpu() -> None:
    compiled = compile_build(SPEC.program.build(_configs(1)[0], TASK), (9, 0))
    facts = build_facts(compiled)
    assert 16 <= facts.n_registers <= 255
    assert facts.stack_bytes >= 0
    assert facts.shared_bytes == compiled.shared_bytes


@pytest.mark.parametrize("n", [0])
def test_no_jobs_is_no_work(n: int) -> None:
    assert CompilePool(n_workers=1).compile([]) == []
