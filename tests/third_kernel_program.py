"""The GPU side of ``third_kernel.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from bo_tuner.kernels.program import Buffers, Build, Launch, Program
from bo_tuner.kernels.spec import ceil_div
from bo_tuner.space import Config
from bo_tuner.task import Task


@triton.jit(do_not_specialize=["rows", "cols"])
def softmax(source, target, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = (row < rows)[:, None] & (col < cols)[None, :]
        x = tl.load(source + row[:, None] * cols + col[None, :], mask=mask, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(tl.maximum(top, tl.max(x, 1)), -1e30)
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), 1)
        top = higher
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = (row < rows)[:, None] & (col < cols)[None, :]
        x = tl.load(source + row[:, None] * cols + col[None, :], mask=mask, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - top[:, None]) / total[:, None]
        tl.store(target + row[:, None] * cols + col[None, :], y.to(tl.bfloat16), mask=mask)


class SoftmaxProgram(Program):
    def build(self, config: Config, task: Task) -> Build:
        constants = {"ROWS": config["rows_at_once"], "BLOCK": config["block"]}
        types = {
            "source": "*bf16",
            "target": "*bf16",
            "rows": "i32",
            "cols": "i32",
            **dict.fromkeys(constants, "constexpr"),
        }
        return Build(softmax, types, constants, ("source", "target"), int(config["num_warps"]), 1)

    def buffers(self, task: Task, seed: int, where: torch.device | str) -> Buffers:
        generator = torch.Generator(device=where).manual_seed(seed)
        shape = (task.shape["rows"], task.shape["cols"])
        source = torch.randn(shape, generator=generator, device=where, dtype=torch.bfloat16)
        return Buffers((source,), torch.empty_like(source))

    def launch(self, config: Config, task: Task, buffers: Buffers) -> Launch:
        rows, cols, at_once = task.shape["rows"], task.shape["cols"], int(config["rows_at_once"])
        args = (*buffers.inputs, buffers.output, rows, cols, at_once, int(config["block"]))
        return Launch((ceil_div(rows, at_once), 1, 1), args)

    def reference(self, buffers: Buffers) -> torch.Tensor:
        return buffers.inputs[0].float().softmax(-1)

    def baselines(self, buffers: Buffers) -> Mapping[str, Callable[[], object]]:
        return {"torch": lambda: buffers.inputs[0].softmax(-1)}


PROGRAM = SoftmaxProgram()
