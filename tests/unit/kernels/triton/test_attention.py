"""The attention kernel without a GPU: right results in Triton's interpreter, shared memory as the compiler has it.

The interpreter is chosen when Triton is imported, so those runs have a process of their own.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from bo_tuner.evaluators.compiling import build_facts, compile_build
from bo_tuner.kernels.attention import NO_CAP, AttentionSpec
from bo_tuner.space import Config
from bo_tuner.task import Device, Task, device_named
from tests.interpreted import in_interpreter
from tests.unit.kernels.visiting import attention_order, first_written

SPEC = AttentionSpec()
H200 = device_named("nvidia_h200")
TOLERANCE = 1e-2

INTERPRET = """
import json, sys
import torch
from torch.nn.functional import scaled_dot_product_attention
from bo_tuner.kernels.attention import AttentionSpec
from bo_tuner.task import device_named

spec, h200 = AttentionSpec(), device_named("nvidia_h200")
torch.set_num_threads(1)
errors = []
for shape, config, poison in json.loads(sys.argv[1]):
    task = spec.task(shape, h200)
    reason = spec.space.why_invalid(config, task)
    assert reason is None, (config, reason)
    buffers = spec.program.buffers(task, 0, "cpu")
    q, k, v = buffers.inputs
    right = scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True, enable_gqa=True)
    assert torch.allclose(spec.program.reference(buffers), right, atol=1e-5)
    if poison:  # what the last rows of a head must not read
        k[0, 1:], v[0, 1:] = float("nan"), float("nan")
        right = right[0, : q.shape[1] // k.shape[1]]
    build, launch = spec.program.build(config, task), spec.program.launch(config, task, buffers)
    buffers.output.fill_(float("nan"))
    build.function[launch.grid](*launch.args, num_warps=build.num_warps, num_stages=build.num_stages)
    out = buffers.output.float()
    out = out[0, : len(right)] if poison else out
    errors.append(float((out - right).norm() / right.norm()))
print(json.dumps(errors))
"""


def shape_of(batch: int, heads: int, kv_heads: int, seq: int, head_dim: int) -> dict[str, int]:
    return {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}


def config_of(
    block_m: int,
    block_n: int,
    loader: str,
    order: str | None = None,
    band: int = 1,
    *,
    near: int | None = None,
    stages: int = 2,
    pack: int = 1,
    cap: int = NO_CAP,
) -> dict[str, int | str]:
    """``near`` is diagonal_n, block_n by default; ``order`` and ``band`` are left out where there is one tile."""
    config: dict[str, int | str] = {"block_m": block_m, "block_n": block_n, "diagonal_n": near or block_n}
    config |= {"num_stages": stages, "loader": loader, "pack": pack, "max_registers": cap}
    return config if order is None else config | {"order": order, "band": band}


ALL = 4096
CASES = [
    (shape_of(1, 1, 1, 1, 64), config_of(16, 32, "pointer"), False),
    (shape_of(2, 2, 1, 1, 128), config_of(64, 128, "tma"), False),
    (shape_of(1, 1, 1, 3, 128), config_of(32, 64, "pointer", stages=1), False),
    (shape_of(2, 3, 3, 3, 64), config_of(16, 128, "tma"), False),
    (shape_of(2, 4, 1, 17, 64), config_of(16, 64, "tma", "longest_first"), False),
    (shape_of(2, 2, 2, 67, 64), config_of(64, 32, "pointer", "ascending"), False),
    (shape_of(1, 2, 1, 67, 128), config_of(16, 128, "tma", "ascending"), False),
    (shape_of(1, 2, 1, 130, 64), config_of(64, 128, "tma", "longest_first", ALL), False),
    (shape_of(2, 2, 1, 130, 64), config_of(128, 32, "tma", "longest_first", ALL), False),
    # narrower steps near the diagonal
    (shape_of(1, 3, 1, 67, 64), config_of(64, 128, "tma", "longest_first", near=64), False),
    (shape_of(2, 2, 1, 131, 128), config_of(64, 64, "pointer", "ascending", near=32), False),
    (shape_of(1, 1, 1, 269, 64), config_of(128, 128, "tma", "longest_first", near=32), False),
    (shape_of(1, 2, 2, 257, 128), config_of(64, 128, "pointer", "ascending", near=32), False),
    # heads that share a tile
    (shape_of(1, 4, 1, 1, 64), config_of(64, 32, "tma", pack=4), False),
    (shape_of(2, 4, 1, 17, 64), config_of(64, 32, "tma", "longest_first", pack=4), False),
    (shape_of(1, 8, 2, 67, 128), config_of(128, 64, "pointer", "ascending", pack=4), False),
    (shape_of(2, 4, 2, 67, 64), config_of(64, 32, "pointer", "longest_first", ALL, pack=2), False),
    (shape_of(3, 6, 3, 131, 64), config_of(128, 128, "tma", "ascending", pack=2, near=64), False),
    # registers capped
    (shape_of(1, 1, 1, 130, 128), config_of(64, 64, "tma", "longest_first", cap=128), False),
    (shape_of(1, 2, 1, 67, 64), config_of(64, 128, "tma", "ascending", cap=128), False),
    # the rows of the next head are not read
    (shape_of(1, 4, 2, 67, 64), config_of(64, 128, "pointer", "longest_first"), True),
    (shape_of(1, 4, 2, 67, 64), config_of(32, 64, "tma", "ascending"), True),
    (shape_of(1, 4, 2, 67, 64), config_of(64, 64, "tma", "longest_first", ALL, pack=2, near=32), True),
    (shape_of(1, 8, 2, 61, 64), config_of(64, 64, "pointer", "longest_first", pack=4, near=32), True),
]


def test_right_in_the_interpreter() -> None:
    errors = in_interpreter("-c", INTERPRET, json.dumps(CASES))
    assert len(errors) == len(CASES)
    for (shape, config, _), error in zip(CASES, errors, strict=True):
        assert error < TOLERANCE, (shape, config, error)


def test_cases_have_every_pack_with_both_loaders() -> None:
    kinds = {(config["pack"], config["loader"]) for _, config, _ in CASES}
    assert kinds == {(pack, loader) for pack in (1, 2, 4) for loader in ("pointer", "tma")}


def test_tiles_are_visited_in_the_order_of_the_config() -> None:
    orders = [(1, "ascending", 1), (1, "ascending", 2), (2, "ascending", 1)]
    orders += [(1, "longest_first", 1), (1, "longest_first", 2), (2, "longest_first", ALL), (4, "longest_first", 2)]
    cases, expected = [], []
    for pack, order, band in orders:
        cases.append((shape_of(1, 3 * pack, 3, 35, 64), config_of(16 * pack, 32, "tma", order, band, pack=pack)))
        visits = attention_order(3, 3, order, band)
        expected.append([[[0, pack * head, 16 * t, 0], pack * min(16, 35 - 16 * t) * 64] for head, t in visits])
    assert first_written("attention", cases) == expected


def test_launch_keys_and_shapes_compile_nothing() -> None:
    assert {p.name for p in SPEC.space.parameters if p.launch} == {"order", "band"}
    task, other = (SPEC.task(shape, H200) for shape in (shape_of(1, 2, 1, 4096, 64), shape_of(3, 10, 5, 777, 64)))
    program = SPEC.program
    keys = [
        program.build(config_of(128, 64, "tma", order, band, pack=2), of).key
        for of in (task, other)
        for order in ("ascending", "longest_first")
        for band in (1, 8, ALL)
    ]
    assert len(set(keys)) == 1
    assert hash(keys[0]) == hash(keys[-1])


def test_run_time_integers_are_not_specialised() -> None:
    build = SPEC.program.build(config_of(128, 64, "tma"), SPEC.task(shape_of(1, 8, 2, 4096, 64), H200))
    integers = {name for name, kind in build.signature.items() if kind == "i32"}
    assert integers <= set(build.function.do_not_specialize)
    assert not integers & set(build.divisible)


def test_a_cap_on_registers_holds() -> None:
    task = SPEC.task(shape_of(1, 8, 2, 4096, 64), H200)
    config = config_of(64, 128, "tma", cap=128)
    assert SPEC.space.why_invalid({**config, "order": "ascending", "band": 1}, task) is None
    used = []
    for cap in (128, NO_CAP):
        compiled = compile_build(SPEC.program.build({**config, "max_registers": cap}, task), (9, 0))
        assert compiled.ok, compiled.message
        used.append(build_facts(compiled).n_registers)
    assert used[0] <= 128 < used[1]


def compiled_shared_bytes(task: Task, config: Config) -> int:
    """Shared memory of a config as the compiler allocates it for the task's device."""
    compiled = compile_build(SPEC.program.build(config, task), task.device.capability)
    assert compiled.ok, compiled.message
    return compiled.shared_bytes


def predicted_shared_bytes(task: Task, config: Config) -> int:
    columns = {name: np.array([value]) for name, value in config.items()}
    return int(SPEC.shared_bytes(columns, task)[0])


@pytest.mark.parametrize(
    ("head_dim", "config"),
    [
        (64, config_of(16, 32, "pointer", stages=1)),
        (64, config_of(32, 64, "tma", stages=3)),
        (64, config_of(128, 32, "tma", stages=3)),
        (64, config_of(64, 128, "tma", stages=1)),
        (64, config_of(64, 64, "pointer", stages=2)),
        (128, config_of(128, 64, "tma", stages=4)),
        (128, config_of(64, 64, "pointer", stages=2, near=32)),
        (64, config_of(128, 128, "tma", stages=2, near=32)),
        (128, config_of(64, 128, "tma", stages=3, near=64)),
        (64, config_of(128, 64, "tma", stages=2, pack=2)),
        (128, config_of(64, 64, "tma", stages=3, pack=4, near=32)),
        (128, config_of(64, 64, "pointer", stages=1, pack=4)),
        (64, config_of(64, 128, "tma", stages=4, cap=128)),
    ],
)
def test_shared_bytes_are_exact_on_hopper(head_dim: int, config: Config) -> None:
    task = SPEC.task(shape_of(1, 8, 2, 128, head_dim), H200)
    assert predicted_shared_bytes(task, config) == compiled_shared_bytes(task, config)


@pytest.mark.parametrize("device", ["nvidia_a100_sxm4_80gb", "nvidia_b200"])
@pytest.mark.parametrize(
    "config",
    [
        config_of(16, 32, "pointer"),
        config_of(128, 64, "pointer", stages=3),
        config_of(128, 64, "pointer", near=32),
        config_of(64, 64, "pointer", pack=2),
    ],
)
def test_shared_bytes_are_an_upper_estimate_elsewhere(device: str, config: Config) -> None:
    where: Device = device_named(device)
    task = SPEC.task(shape_of(1, 8, 2, 4096, 64), where)
    assert compiled_shared_bytes(task, config) <= predicted_shared_bytes(task, config)
