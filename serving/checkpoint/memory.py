"""What a checkpoint takes: weights, and the KV cache of one token, and on how many GPUs that fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.checkpoint.findings import amount
from serving.checkpoint.header import BITS
from serving.checkpoint.layers import Layers, natural
from serving.checkpoint.quantisation import is_quantised

GPUS = (80, 141)
"""GB of one GPU: A100/H100, H200."""
COUNTS = (1, 2, 4, 8, 16, 32)
USED = 0.9
"""Share of a GPU that vLLM takes (its gpu-memory-utilization)."""
WORKING_BYTES = 4_000_000_000
"""Of each GPU, for activations and graphs: a rough figure."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes; an estimate for one request of `context` tokens, with the KV cache in the model's own dtype."""

    weights: int
    kv_per_token: int
    """On one GPU without tensor parallelism; 0 where the config does not tell."""
    kv_kind: str
    """MLA, GQA, MHA or MQA; empty where the config does not tell."""
    context: int
    """0: not known; then the GPUs are those for the weights alone."""
    gpus: Mapping[str, int | None]
    """`80 GB` -> how many, None where more than 32 would be needed."""

    def __str__(self) -> str:
        """One line."""
        cache = f"{self.kv_per_token / 1024:.1f} KiB of KV cache per token ({self.kv_kind})"
        whole = f"{amount(self.kv_per_token * self.context)} at {self.context} tokens"
        told = ", ".join([cache] + [whole] * bool(self.context)) if self.kv_kind else "KV cache not known"
        fits = ", ".join(f"{count or 'more than 32'} x {size}" for size, count in self.gpus.items())
        return f"weights {amount(self.weights)}, {told}; GPUs for {self._holding}: {fits}"

    @property
    def known(self) -> bool:
        """Whether the config tells all that the estimate needs."""
        return bool(self.kv_kind and self.context)

    @property
    def _holding(self) -> str:
        return "one such request" if self.known else "the weights alone"


def memory(layers: Layers, context: int) -> Memory:
    """The estimate. Linear-attention layers have a small fixed state instead of a cache, and are not counted."""
    config = layers.checkpoint.text_config
    weights = sum(tensor.size for tensor in layers.checkpoint.tensors.values())
    width, kind, divisible = _per_layer(config)
    per_token = width * _cached_layers(layers) * _element(layers) // 8
    heads = natural(config.get("num_attention_heads")) or 1
    gpus = {}
    for size in GPUS:
        room = size * 1e9 * USED - WORKING_BYTES
        fitting = (
            n for n in COUNTS if heads % n == 0 and weights / n + per_token * context / min(n, divisible) <= room
        )
        gpus[f"{size} GB"] = next(fitting, None)
    return Memory(weights, per_token, kind, context, gpus)


def _per_layer(config: Mapping[str, Any]) -> tuple[int, str, int]:
    """Numbers that one layer keeps of one token, what kind of attention it is, and over how many GPUs it is spread."""
    if rank := natural(config.get("kv_lora_rank")):
        return rank + natural(config.get("qk_rope_head_dim")), "MLA", 1
    heads = natural(config.get("num_attention_heads"))
    groups = natural(config.get("num_key_value_heads"), heads)
    width = natural(config.get("head_dim")) or (natural(config.get("hidden_size")) // heads if heads else 0)
    if not groups * width:
        return 0, "", 1
    kind = "MHA" if groups == heads else "MQA" if groups == 1 else "GQA"
    return 2 * groups * width, kind, groups


def _cached_layers(layers: Layers) -> int:
    """Layers that keep a cache: those with full attention, and the MTP layers."""
    config = layers.checkpoint.text_config
    count = natural(config.get("num_hidden_layers"), len(layers.main))
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        count = sum(kind != "linear_attention" for kind in kinds)
    elif interval := natural(config.get("full_attention_interval")):
        count //= interval
    return count + len(layers.mtp)


def _element(layers: Layers) -> int:
    """Bits of one number of the cache: those of the model's plain tensors."""
    plain = [t.dtype for t in layers.reference.values() if not is_quantised(t) and t.dtype in ("BF16", "F16", "F32")]
    return BITS[plain[0]] if plain else 16
