"""Sizes of public language models, whole and cut for several GPUs: what the shapes of a kernel are drawn from."""

from __future__ import annotations

# Public model cards: hidden size, width of the MLP, query heads, key heads, head size, vocabulary (0: not used here).
_LAYERS = (
    (4096, 11008, 32, 32, 128, 32000),  # Llama 2 7B
    (5120, 13824, 40, 40, 128, 32000),  # Llama 2 13B
    (8192, 28672, 64, 8, 128, 128256),  # Llama 3 70B
    (4096, 14336, 32, 8, 128, 128256),  # Llama 3 8B, Mistral 7B
    (2048, 8192, 32, 8, 64, 128256),  # Llama 3.2 1B
    (3072, 8192, 24, 8, 128, 128256),  # Llama 3.2 3B
    (16384, 53248, 128, 8, 128, 0),  # Llama 3.1 405B
    (896, 4864, 14, 2, 64, 151936),  # Qwen 2.5 0.5B
    (1536, 8960, 12, 2, 128, 151936),  # Qwen 2.5 1.5B
    (3584, 18944, 28, 4, 128, 152064),  # Qwen 2.5 7B
    (5120, 27648, 40, 8, 128, 152064),  # Qwen 2.5 32B
    (8192, 29568, 64, 8, 128, 0),  # Qwen 2.5 72B
    (2560, 9728, 32, 8, 128, 151936),  # Qwen 3 4B
    (2304, 9216, 8, 4, 256, 256000),  # Gemma 2 2B
    (4608, 36864, 32, 16, 128, 0),  # Gemma 2 27B
    (3072, 8192, 32, 32, 96, 32064),  # Phi 3 mini
    (2880, 2880, 64, 8, 64, 201088),  # GPT-OSS 20B
    (768, 3072, 12, 12, 64, 0),  # GPT-2
    (1600, 6400, 25, 25, 64, 0),  # GPT-2 XL
    (576, 1536, 9, 3, 64, 49152),  # SmolLM 135M
)
# DeepSeek V3: (N, K) of its attention and expert projections.
_MORE_WEIGHTS = ((2112, 7168), (576, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048), (512, 7168))


def _cut_weights() -> tuple[tuple[int, int], ...]:
    """(N, K) of every projection of the models, whole and cut for 2, 4 and 8 GPUs as tensor parallelism does."""
    found = dict.fromkeys(_MORE_WEIGHTS)
    for hidden, mlp, heads, kv_heads, head, vocabulary in _LAYERS:
        for gpus in (1, 2, 4, 8):
            wide = ((heads + 2 * kv_heads) * head, 2 * mlp, vocabulary)
            found.update(dict.fromkeys((n // gpus, hidden) for n in wide if n % (32 * gpus) == 0 and n))
            found.update(dict.fromkeys((hidden, k // gpus) for k in (heads * head, mlp) if k % (32 * gpus) == 0))
    return tuple((n, k) for n, k in found if n >= 256 and k >= 256)


#: (N, K) of projections.
WEIGHTS = _cut_weights()

# Public model cards: query heads, key heads, head size.
_HEADS = (
    (32, 32, 128),  # Llama 2 7B
    (40, 40, 128),  # Llama 2 13B, Qwen 1.5 14B
    (64, 8, 128),  # Llama 2 and 3 70B, Qwen 2.5 72B
    (32, 8, 128),  # Llama 3 8B, Mistral 7B, Mixtral 8x7B, Qwen 3 8B
    (128, 8, 128),  # Llama 3.1 405B
    (24, 8, 128),  # Llama 3.2 3B
    (32, 8, 64),  # Llama 3.2 1B
    (96, 8, 128),  # Mistral Large
    (14, 2, 64),  # Qwen 2.5 0.5B
    (12, 2, 128),  # Qwen 2.5 1.5B
    (16, 2, 128),  # Qwen 2.5 3B
    (28, 4, 128),  # Qwen 2.5 7B
    (40, 8, 128),  # Qwen 2.5 14B and 32B, Qwen 3 14B
    (16, 8, 128),  # Qwen 3 0.6B and 1.7B
    (32, 4, 128),  # Qwen 3 30B-A3B, Yi 6B
    (64, 4, 128),  # Qwen 3 235B-A22B
    (32, 16, 128),  # Gemma 2 27B, Gemma 3 27B
    (64, 8, 64),  # GPT-OSS 20B and 120B
    (40, 10, 128),  # Phi 3 medium, Phi 4
    (24, 8, 128),  # Phi 4 mini
    (32, 32, 64),  # Phi 1.5, OPT 1.3B, SmolLM 2 1.7B
    (9, 3, 64),  # SmolLM 135M
    (15, 5, 64),  # SmolLM 360M
    (16, 4, 128),  # SmolLM 3
    (71, 1, 64),  # Falcon 7B
    (128, 8, 64),  # Falcon 40B
    (48, 1, 128),  # StarCoder
    (12, 12, 64),  # GPT-2
    (25, 25, 64),  # GPT-2 XL
)


def _cut_heads() -> tuple[tuple[int, int, int], ...]:
    """(heads, key heads, head size) of one GPU of 1, 2, 4 or 8: heads are cut, key heads repeated where too few."""
    cuts: dict[tuple[int, int, int], None] = {}
    for heads, kv_heads, head_dim in _HEADS:
        for gpus in (1, 2, 4, 8):
            kv_heads_here = max(1, kv_heads // gpus)
            if heads % gpus == 0 and (kv_heads % gpus == 0 or gpus % kv_heads == 0):
                cuts[heads // gpus, kv_heads_here, head_dim] = None
    return tuple(cuts)


#: (query heads, key heads, head size) of attention layers.
HEADS = _cut_heads()
