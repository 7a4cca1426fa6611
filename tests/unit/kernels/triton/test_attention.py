"""The attention kernel without a GPU: right results in Triton's interpreter, shared memory as the compiler has it.

The interpreter is chosen when Triton is imported, so those runs have a process of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bo_tuner.kernels.attention import AttentionSpec
from bo_tuner.space import Config
from bo_tuner.task import Device, Task, device_named

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
    print(float((out - right).norm() / right.norm()))
"""


def shape_of(batch: int, heads: int, kv_heads: int, seq: int, head_dim: int) -> dict[str, int]:
    return {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}


def config_of(
    block_m: int, block_n: int, loader: str, order: str | None = None, num_warps: int = 4, num_stages: int = 2
) -> dict[str, int | str]:
    config: dict[str, int | str] = {"block_m": block_m, "block_n": block_n, "num_stages": num_stages}
    config |= {"num_warps": num_warps, "loader": loader}
    return config if order is None else config | {"order": order}


CASES = [
    (shape_of(1, 1, 1, 1, 64), config_of(16, 32, "pointer"), False),
    (shape_of(2, 2, 1, 1, 128), config_of(64, 128, "tma"), False),
    (shape_of(1, 1, 1, 3, 128), config_of(32, 64, "pointer"), False),
    (shape_of(2, 3, 3, 3, 64), config_of(16, 128, "tma"), False),
    (shape_of(1, 4, 2, 17, 64), config_of(16, 32, "pointer", "longest_first_all"), False),
    (shape_of(2, 4, 1, 17, 64), config_of(16, 64, "tma", "longest_first"), False),
    (shape_of(1, 3, 1, 67, 64), config_of(32, 32, "tma", "longest_first_all"), False),
    (shape_of(2, 2, 2, 67, 64), config_of(64, 32, "pointer", "ascending"), False),
    (shape_of(1, 2, 1, 67, 128), config_of(16, 128, "tma", "ascending"), False),
    (shape_of(1, 1, 1, 130, 128), config_of(128, 64, "pointer", "longest_first", num_warps=8), False),
    (shape_of(1, 2, 1, 130, 64), config_of(64, 128, "tma", "longest_first_all"), False),
    (shape_of(2, 2, 1, 130, 64), config_of(128, 32, "tma", "longest_first_all"), False),
    (shape_of(1, 2, 2, 130, 128), config_of(256, 64, "tma", None, num_warps=8), False),
    (shape_of(1, 4, 2, 67, 64), config_of(64, 128, "pointer", "longest_first"), True),
    (shape_of(1, 4, 2, 67, 64), config_of(32, 64, "tma", "ascending"), True),
]


def test_right_in_the_interpreter() -> None:
    result = subprocess.run(
        [sys.executable, "-c", INTERPRET, json.dumps(CASES)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    errors = [float(line) for line in result.stdout.splitlines()]
    assert len(errors) == len(CASES)
    for (shape, config, _), error in zip(CASES, errors, strict=True):
        assert error < TOLERANCE, (shape, config, error)


def test_launch_keys_are_not_compiled() -> None:
    task, other = (SPEC.task(shape, H200) for shape in (shape_of(1, 2, 2, 4096, 64), shape_of(3, 10, 5, 777, 64)))
    program = SPEC.program
    keys = [
        program.build(config_of(128, 64, "tma", order), of).key
        for of in (task, other)
        for order in ("ascending", "longest_first", "longest_first_all")
    ]
    assert len(set(keys)) == 1
    assert hash(keys[0]) == hash(keys[-1])


def compiled_shared_bytes(task: Task, config: Config) -> int:
    """Shared memory of a config as the compiler allocates it for the task's device."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    build = SPEC.program.build(config, task)
    place = {name: (position,) for position, name in enumerate(build.signature)}
    source = ASTSource(
        build.function,
        dict(build.signature),
        constexprs={place[name]: value for name, value in build.constants.items()},
        attrs={place[name]: [["tt.divisibility", 16]] for name in build.divisible},
    )
    major, minor = task.device.capability
    options = {"num_warps": build.num_warps, "num_stages": build.num_stages}
    kernel = triton.compile(source, target=GPUTarget("cuda", 10 * major + minor, 32), options=options)
    return int(kernel.metadata.shared)


def predicted_shared_bytes(task: Task, config: Config) -> int:
    columns = {name: np.array([value]) for name, value in config.items()}
    return int(SPEC.shared_bytes(columns, task)[0])


@pytest.mark.parametrize(
    ("head_dim", "config"),
    [
        (64, config_of(16, 32, "pointer", num_stages=1)),
        (64, config_of(32, 64, "tma", num_stages=3)),
        (64, config_of(128, 32, "tma", num_stages=3)),
        (64, config_of(64, 128, "tma", num_stages=1)),
        (64, config_of(64, 64, "pointer", num_stages=4)),
        (128, config_of(128, 64, "tma", num_warps=8, num_stages=3)),
        (128, config_of(64, 64, "pointer", num_stages=2)),
        (128, config_of(128, 64, "tma", num_warps=8, num_stages=2)),
    ],
)
def test_shared_bytes_are_exact_on_hopper(head_dim: int, config: Config) -> None:
    task = SPEC.task(shape_of(1, 8, 2, 4096, head_dim), H200)
    assert predicted_shared_bytes(task, config) == compiled_shared_bytes(task, config)


@pytest.mark.parametrize("device", ["nvidia_a100_sxm4_80gb", "nvidia_b200"])
@pytest.mark.parametrize("config", [config_of(16, 32, "pointer"), config_of(128, 64, "pointer", num_stages=3)])
def test_shared_bytes_are_an_upper_estimate_elsewhere(device: str, config: Config) -> None:
    where: Device = device_named(device)
    task = SPEC.task(shape_of(1, 8, 2, 4096, 64), where)
    assert compiled_shared_bytes(task, config) <= predicted_shared_bytes(task, config)
