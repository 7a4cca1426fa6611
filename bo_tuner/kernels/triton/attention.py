"""GPU side of causal attention: the jit source, its launcher, its reference and the library baselines.

The loop structure is FlashAttention-2's (Dao, 2023): one block of threads owns ``BLOCK_M`` queries of one head and walks
over the keys they may see, holding a running row maximum and row sum. Tiles wholly below the diagonal are walked
without a mask and without bounds; only the few that touch the diagonal pay for both, and may be narrower, so that less
of what they compute is masked.

Query heads that share a key head may share a tile (``PACK``, as in FlashAttention-3): the rows of a tile are then the
same queries of several heads, so a short sequence fills a tall tile and its keys are loaded once for all of them.
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

from bo_tuner.kernels.attention_tiles import NO_CAP, NUM_WARPS
from bo_tuner.kernels.program import Buffers, Build, Launch, Program
from bo_tuner.kernels.spec import ceil_div
from bo_tuner.kernels.triton.descriptors import described
from bo_tuner.space import Config
from bo_tuner.task import Task

#: The interpreter multiplies the bit patterns of bfloat16 (Triton 3.6 to 3.9), so tiles are widened there.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_REFERENCE_QUERIES = 1024
_REFERENCE_SCORES = 2**27


@triton.jit
def _offsets(seq, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr, PACK: tl.constexpr):
    """Offsets of a tile from its first element: ``BLOCK / PACK`` rows each of ``PACK`` heads that follow one another."""
    row = tl.arange(0, BLOCK)
    if PACK == 1:  # noqa: SIM108 - a constexpr branch
        offset = row * HEAD_DIM
    else:
        offset = (row // (BLOCK // PACK)) * seq * HEAD_DIM + row % (BLOCK // PACK) * HEAD_DIM
    return offset[:, None] + tl.arange(0, HEAD_DIM)[None, :]


@triton.jit
def _rows(
    source, head, start, seq, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr, PACK: tl.constexpr, TMA: tl.constexpr,
    BOUNDS: tl.constexpr,
):  # fmt: skip
    """Rows from ``start`` on of ``PACK`` heads from ``head`` on, ``[BLOCK, HEAD_DIM]``; rows past ``seq`` are zero."""
    if TMA:
        # Three dimensions, so that the hardware's bounds are those of the head, not of the whole tensor.
        tile = source.load([head, start, 0]).reshape([BLOCK, HEAD_DIM])
    else:
        pointers = source + head.to(tl.int64) * seq * HEAD_DIM + start * HEAD_DIM
        pointers += _offsets(seq, HEAD_DIM, BLOCK, PACK)
        inside = (start + tl.arange(0, BLOCK) % (BLOCK // PACK) < seq)[:, None]
        tile = tl.load(pointers, mask=inside, other=0.0) if BOUNDS else tl.load(pointers)
    return tile


@triton.jit
def _walk(
    acc, row_sum, row_max, q, k_source, v_source, kv_head, query_start, first_key, end_key, seq,
    SCALE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PACK: tl.constexpr, TMA: tl.constexpr, MASKED: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Attend to keys ``first_key`` to ``end_key``; ``MASKED`` for the tiles that touch the diagonal."""
    for start in tl.range(first_key, end_key, BLOCK_N):
        k = _rows(k_source, kv_head, start, seq, HEAD_DIM, BLOCK_N, 1, TMA, MASKED)
        if WIDEN:
            k = k.to(tl.float32)
        score = tl.dot(q, k.T)
        if MASKED:
            query = query_start + tl.arange(0, BLOCK_M) % (BLOCK_M // PACK)
            key = start + tl.arange(0, BLOCK_N)
            score = tl.where(key[None, :] <= query[:, None], score, float("-inf"))
        # The scale is applied inside the exponent, where it is one fused multiply-add.
        new_max = tl.maximum(row_max, tl.max(score, 1) * SCALE)
        p = tl.exp2(score * SCALE - new_max[:, None])
        decay = tl.exp2(row_max - new_max)
        row_sum = row_sum * decay + tl.sum(p, 1)
        acc = acc * decay[:, None]
        row_max = new_max
        v = _rows(v_source, kv_head, start, seq, HEAD_DIM, BLOCK_N, 1, TMA, MASKED)
        if WIDEN:
            v = v.to(tl.float32)
        acc = tl.dot(p.to(v.dtype), v, acc)
    return acc, row_sum, row_max


@triton.jit(do_not_specialize=["n_heads", "group", "seq", "band", "longest_first"])
def attention_forward(
    q_source, k_source, v_source, k_diagonal, v_diagonal, output, n_heads, group, seq, band, longest_first,
    SCALE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    DIAGONAL_N: tl.constexpr, PACK: tl.constexpr, TMA: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One tile: ``BLOCK_M / PACK`` queries of ``PACK`` heads.

    Args:
        q_source: queries, ``[n_heads, seq, HEAD_DIM]``: a pointer, or a descriptor with block
            ``[PACK, BLOCK_M / PACK, HEAD_DIM]``.
        k_source: keys, ``[n_heads / group, seq, HEAD_DIM]``, likewise with ``[1, BLOCK_N, HEAD_DIM]``.
        v_source: values, like the keys.
        k_diagonal: keys once more, with DIAGONAL_N for BLOCK_N.
        v_diagonal: values, likewise.
        output: pointer, laid out like the queries.
        n_heads: batch × heads.
        group: query heads that share one key head.
        seq: number of queries, and of keys.
        band: so many packs of heads have their tiles visited together; see ``AttentionSpec``.
        longest_first: 1 where a band is walked from the last tile to the first, else 0.
        SCALE: softmax scale × log2(e).
        HEAD_DIM: length of a row.
        BLOCK_M: rows a tile.
        BLOCK_N: keys a step.
        DIAGONAL_N: keys a step near the diagonal.
        PACK: heads a tile; divides ``group``.
        TMA: whether the sources are tensor descriptors.
        WIDEN: multiply in float32, for the interpreter.
    """
    QUERIES: tl.constexpr = BLOCK_M // PACK
    n_tiles = tl.cdiv(seq, QUERIES)
    # Bands of packs; in one, the same tile of every pack comes before the next tile of any.
    program = tl.program_id(0)
    first = program // (band * n_tiles) * band
    inside = program - first * n_tiles
    width = tl.minimum(n_heads // PACK - first, band)
    head = (first + inside % width) * PACK
    tile = inside // width
    if longest_first != 0:
        tile = n_tiles - 1 - tile
    # Heads are a multiple of the group, so this also finds the key head within the right batch entry.
    kv_head = head // group
    query_start = tile * QUERIES

    q = _rows(q_source, head, query_start, seq, HEAD_DIM, BLOCK_M, PACK, TMA, True)
    if WIDEN:
        q = q.to(tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)

    # Keys before ``diagonal`` are seen by every query of the tile, and are fewer than ``seq``.
    diagonal = query_start // BLOCK_N * BLOCK_N
    acc, row_sum, row_max = _walk(
        acc, row_sum, row_max, q, k_source, v_source, kv_head, query_start, 0, diagonal, seq,
        SCALE, HEAD_DIM, BLOCK_M, BLOCK_N, PACK, TMA, False, WIDEN,
    )  # fmt: skip
    acc, row_sum, row_max = _walk(
        acc, row_sum, row_max, q, k_diagonal, v_diagonal, kv_head, query_start, diagonal,
        tl.minimum(query_start + QUERIES, seq), seq,
        SCALE, HEAD_DIM, BLOCK_M, DIAGONAL_N, PACK, TMA, True, WIDEN,
    )  # fmt: skip

    pointers = output + head.to(tl.int64) * seq * HEAD_DIM + query_start * HEAD_DIM
    pointers += _offsets(seq, HEAD_DIM, BLOCK_M, PACK)
    inside = (query_start + tl.arange(0, BLOCK_M) % QUERIES < seq)[:, None]
    acc = acc * (1.0 / row_sum)[:, None]
    tl.store(pointers, acc.to(output.dtype.element_ty), mask=inside)


_SOURCES = ("q_source", "k_source", "v_source", "k_diagonal", "v_diagonal")


def _blocks(config: Config, task: Task) -> list[list[int]]:
    """What one descriptor load brings of each source: [heads, rows, head_dim]."""
    pack, head_dim = int(config.get("pack", 1)), task.shape["head_dim"]
    keys, near = ([1, int(config[name]), head_dim] for name in ("block_n", "diagonal_n"))
    return [[pack, int(config["block_m"]) // pack, head_dim], keys, keys, near, near]


def _constants(config: Config, task: Task) -> dict[str, Any]:
    """Constexpr arguments, in the order of the jit function."""
    head_dim = task.shape["head_dim"]
    return {
        "SCALE": math.log2(math.e) / math.sqrt(head_dim),
        "HEAD_DIM": head_dim,
        "BLOCK_M": config["block_m"],
        "BLOCK_N": config["block_n"],
        "DIAGONAL_N": config["diagonal_n"],
        "PACK": config.get("pack", 1),
        "TMA": config["loader"] == "tma",
        "WIDEN": INTERPRETED,
    }


class AttentionProgram(Program):
    """Compile, launch and judge causal attention."""

    def build(self, config: Config, task: Task) -> Build:
        constants = _constants(config, task)
        types = {"output": "*bf16", **dict.fromkeys(constants, "constexpr")}
        for name, block in zip(_SOURCES, _blocks(config, task), strict=True):
            types[name] = f"tensordesc<bf16{block}>" if constants["TMA"] else "*bf16"
        signature = {name: types.get(name, "i32") for name in attention_forward.arg_names}
        cap = int(config["max_registers"])
        return Build(
            function=attention_forward,
            signature=signature,
            constants=constants,
            divisible=tuple(name for name, kind in signature.items() if kind.startswith("*")),
            num_warps=NUM_WARPS,
            num_stages=int(config["num_stages"]),
            max_registers=None if cap == NO_CAP else cap,
        )

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
        pack = int(config.get("pack", 1))
        n_heads, group = task.shape["batch"] * task.shape["heads"], task.shape["heads"] // task.shape["kv_heads"]
        q, k, v = (tensor.view(-1, seq, head_dim) for tensor in buffers.inputs)
        sources: list[Any] = [q, k, v, k, v]
        if config["loader"] == "tma":
            blocks = _blocks(config, task)
            sources = [described(buffers, tensor, block) for tensor, block in zip(sources, blocks, strict=True)]
        order = (min(int(config.get("band", 1)), n_heads // pack), int(config.get("order") == "longest_first"))
        args = (*sources, buffers.output, n_heads, group, seq, *order, *_constants(config, task).values())
        return Launch((ceil_div(seq, int(config["block_m"]) // pack) * (n_heads // pack), 1, 1), args)

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
