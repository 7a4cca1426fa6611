"""GPU side of causal attention: the jit source, its launcher, its reference and the library baselines.

The loop structure is FlashAttention-2's (Dao, 2023): one block of threads owns ``BLOCK_M`` queries of one head and walks
over the keys they may see, holding a running row maximum and row sum. Tiles wholly below the diagonal are walked
without a mask and without bounds; only the few that touch the diagonal pay for both.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from triton.tools.tensor_descriptor import TensorDescriptor

from bo_tuner.kernels.program import Buffers, Build, Launch, Program
from bo_tuner.kernels.spec import ceil_div
from bo_tuner.space import Config
from bo_tuner.task import Task

#: The interpreter multiplies the bit patterns of bfloat16 (Triton 3.6 to 3.9), so tiles are widened there.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_ORDERS = {"ascending": 0, "longest_first": 1, "longest_first_all": 2}
_REFERENCE_QUERIES = 1024
_REFERENCE_SCORES = 2**27


@triton.jit
def _rows(
    source, head, start, seq, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr, TMA: tl.constexpr, BOUNDS: tl.constexpr
):  # fmt: skip
    """Rows ``start`` to ``start + BLOCK`` of one head, ``[BLOCK, HEAD_DIM]``; rows past ``seq`` are zero."""
    if TMA:
        # Three dimensions, so that the hardware's bounds are those of the head, not of the whole tensor.
        tile = source.load([head, start, 0]).reshape([BLOCK, HEAD_DIM])
    else:
        base = source + head.to(tl.int64) * seq * HEAD_DIM + start * HEAD_DIM
        row = tl.arange(0, BLOCK)[:, None]
        pointers = base + (row * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :])
        tile = tl.load(pointers, mask=start + row < seq, other=0.0) if BOUNDS else tl.load(pointers)
    return tile


@triton.jit
def _walk(
    acc, row_sum, row_max, q, k_source, v_source, kv_head, query_start, first_key, end_key, seq,
    SCALE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    TMA: tl.constexpr, MASKED: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Attend to keys ``first_key`` to ``end_key``; ``MASKED`` for the tiles that touch the diagonal."""
    for start in tl.range(first_key, end_key, BLOCK_N):
        k = _rows(k_source, kv_head, start, seq, HEAD_DIM, BLOCK_N, TMA, MASKED)
        if WIDEN:
            k = k.to(tl.float32)
        score = tl.dot(q, k.T)
        if MASKED:
            query = query_start + tl.arange(0, BLOCK_M)
            key = start + tl.arange(0, BLOCK_N)
            score = tl.where(key[None, :] <= query[:, None], score, float("-inf"))
        # The scale is applied inside the exponent, where it is one fused multiply-add.
        new_max = tl.maximum(row_max, tl.max(score, 1) * SCALE)
        p = tl.exp2(score * SCALE - new_max[:, None])
        decay = tl.exp2(row_max - new_max)
        row_sum = row_sum * decay + tl.sum(p, 1)
        acc = acc * decay[:, None]
        row_max = new_max
        v = _rows(v_source, kv_head, start, seq, HEAD_DIM, BLOCK_N, TMA, MASKED)
        if WIDEN:
            v = v.to(tl.float32)
        acc = tl.dot(p.to(v.dtype), v, acc)
    return acc, row_sum, row_max


@triton.jit(do_not_specialize=["n_heads", "group", "seq", "order"])
def attention_forward(
    q_source, k_source, v_source, output, n_heads, group, seq, order,
    SCALE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    TMA: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One tile of ``BLOCK_M`` queries of one head.

    Args:
        q_source: queries, ``[n_heads, seq, HEAD_DIM]``: a pointer, or a descriptor with block ``[1, BLOCK_M, HEAD_DIM]``.
        k_source: keys, ``[n_heads / group, seq, HEAD_DIM]``, likewise with ``BLOCK_N``.
        v_source: values, like the keys.
        output: pointer, laid out like the queries.
        n_heads: batch × heads.
        group: query heads that share one key head.
        seq: number of queries, and of keys.
        order: which tile a block of threads takes, see ``AttentionSpec``.
        SCALE: softmax scale × log2(e).
        HEAD_DIM: length of a row.
        BLOCK_M: queries a tile.
        BLOCK_N: keys a step.
        TMA: whether the sources are tensor descriptors.
        WIDEN: multiply in float32, for the interpreter.
    """
    n_tiles = tl.cdiv(seq, BLOCK_M)
    program = tl.program_id(0)
    if order == 2:
        tile = n_tiles - 1 - program // n_heads
        head = program % n_heads
    else:
        head = program // n_tiles
        tile = program % n_tiles
        if order == 1:
            tile = n_tiles - 1 - tile
    # Heads are a multiple of the group, so this also finds the key head within the right batch entry.
    kv_head = head // group
    query_start = tile * BLOCK_M

    q = _rows(q_source, head, query_start, seq, HEAD_DIM, BLOCK_M, TMA, True)
    if WIDEN:
        q = q.to(tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)

    # Keys before ``diagonal`` are seen by every query of the tile, and are fewer than ``seq``.
    diagonal = query_start // BLOCK_N * BLOCK_N
    acc, row_sum, row_max = _walk(
        acc, row_sum, row_max, q, k_source, v_source, kv_head, query_start, 0, diagonal, seq,
        SCALE, HEAD_DIM, BLOCK_M, BLOCK_N, TMA, False, WIDEN,
    )  # fmt: skip
    acc, row_sum, row_max = _walk(
        acc, row_sum, row_max, q, k_source, v_source, kv_head, query_start, diagonal,
        tl.minimum(query_start + BLOCK_M, seq), seq,
        SCALE, HEAD_DIM, BLOCK_M, BLOCK_N, TMA, True, WIDEN,
    )  # fmt: skip

    row = tl.arange(0, BLOCK_M)[:, None]
    base = output + head.to(tl.int64) * seq * HEAD_DIM + query_start * HEAD_DIM
    pointers = base + (row * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :])
    acc = acc * (1.0 / row_sum)[:, None]
    tl.store(pointers, acc.to(output.dtype.element_ty), mask=query_start + row < seq)


class AttentionProgram(Program):
    """Compile, launch and judge causal attention."""

    def build(self, config: Config, task: Task) -> Build:
        block_m, block_n, head_dim = config["block_m"], config["block_n"], task.shape["head_dim"]
        tma = config["loader"] == "tma"
        constants = self._constants(config, task)
        types = {"output": "*bf16", **dict.fromkeys(constants, "constexpr")}
        for name, rows in (("q_source", block_m), ("k_source", block_n), ("v_source", block_n)):
            types[name] = f"tensordesc<bf16[1, {rows}, {head_dim}]>" if tma else "*bf16"
        signature = {name: types.get(name, "i32") for name in attention_forward.arg_names}
        return Build(
            function=attention_forward,
            signature=signature,
            constants=constants,
            divisible=tuple(name for name, kind in signature.items() if kind.startswith("*")),
            num_warps=int(config["num_warps"]),
            num_stages=int(config["num_stages"]),
        )

    @staticmethod
    def _constants(config: Config, task: Task) -> dict[str, Any]:
        """Constexpr arguments, in the order of the jit function."""
        head_dim = task.shape["head_dim"]
        return {
            "SCALE": math.log2(math.e) / math.sqrt(head_dim),
            "HEAD_DIM": head_dim,
            "BLOCK_M": config["block_m"],
            "BLOCK_N": config["block_n"],
            "TMA": config["loader"] == "tma",
            "WIDEN": INTERPRETED,
        }

    def buffers(self, task: Task, seed: int, where: torch.device | str) -> Buffers:
        batch, heads, kv_heads, seq, head_dim = (
            task.shape[key] for key in ("batch", "heads", "kv_heads", "seq", "head_dim")
        )
        generator = torch.Generator(device=where).manual_seed(seed)
        q, k, v = (
            torch.randn((batch, n, seq, head_dim), generator=generator, device=where, dtype=torch.bfloat16)
            for n in (heads, kv_heads, kv_heads)
        )
        return Buffers((q, k, v), torch.empty_like(q))

    def launch(self, config: Config, task: Task, buffers: Buffers) -> Launch:
        seq, head_dim = task.shape["seq"], task.shape["head_dim"]
        block_m, block_n = int(config["block_m"]), int(config["block_n"])
        n_heads, group = task.shape["batch"] * task.shape["heads"], task.shape["heads"] // task.shape["kv_heads"]
        sources: tuple[Any, ...] = buffers.inputs
        if config["loader"] == "tma":
            sources = tuple(
                TensorDescriptor.from_tensor(tensor.view(-1, seq, head_dim), [1, rows, head_dim])
                for tensor, rows in zip(buffers.inputs, (block_m, block_n, block_n), strict=True)
            )
        order = _ORDERS[str(config.get("order", "ascending"))]
        constants = self._constants(config, task).values()
        args = (*sources, buffers.output, n_heads, group, seq, order, *constants)
        return Launch((ceil_div(seq, block_m) * n_heads, 1, 1), args)

    def reference(self, buffers: Buffers) -> torch.Tensor:
        """Plain float32 attention, in pieces whose scores fit half a gigabyte."""
        q, k, v = buffers.inputs
        kv_heads, seq, head_dim = k.shape[1:]
        group = q.shape[1] // kv_heads
        grouped = q.view(-1, group, seq, head_dim)
        k, v = (tensor.view(-1, 1, seq, head_dim) for tensor in (k, v))
        out = torch.empty(grouped.shape, device=q.device, dtype=torch.float32)
        n_queries = min(seq, _REFERENCE_QUERIES, max(1, _REFERENCE_SCORES // (group * seq)))
        n_heads = max(1, _REFERENCE_SCORES // (group * seq * n_queries))
        for head in range(0, len(grouped), n_heads):
            heads = slice(head, head + n_heads)
            for first in range(0, seq, n_queries):
                last = min(first + n_queries, seq)
                seen = torch.ones((last - first, last), device=q.device, dtype=torch.bool).tril(first)
                with sdpa_kernel(SDPBackend.MATH):
                    out[heads, :, first:last] = scaled_dot_product_attention(
                        grouped[heads, :, first:last].float(),
                        k[heads, :, :last].float().expand(-1, group, -1, -1),
                        v[heads, :, :last].float().expand(-1, group, -1, -1),
                        attn_mask=seen,
                    )
        return out.view(q.shape)

    def baselines(self, buffers: Buffers) -> Mapping[str, Callable[[], object]]:
        q, k, v = buffers.inputs
        group = q.shape[1] // k.shape[1]

        def library(backend: SDPBackend, k: torch.Tensor, v: torch.Tensor) -> Callable[[], object]:
            def run() -> object:
                with sdpa_kernel(backend):
                    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1])

            return run

        # The memory-efficient back end knows no grouped heads; copying them is not part of what is timed.
        whole = (k, v) if group == 1 else tuple(tensor.repeat_interleave(group, dim=1) for tensor in (k, v))
        return {
            "sdpa_flash": library(SDPBackend.FLASH_ATTENTION, k, v),
            "sdpa_cudnn": library(SDPBackend.CUDNN_ATTENTION, k, v),
            "sdpa_efficient": library(SDPBackend.EFFICIENT_ATTENTION, *whole),
        }


PROGRAM = AttentionProgram()
