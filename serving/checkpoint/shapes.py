"""The shapes that a config gives to the well-known tensors of a decoder; 0 is a length that it does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving.checkpoint.layers import Layer, Layers, natural
from serving.checkpoint.quantisation import is_quantised

GATED = frozenset({"qwen3_next", "qwen3_5"})
"""Families whose query projection may be twice as high: it can hold an output gate too."""
UNEVEN = frozenset({"mimo_v2"})
"""Families whose layers differ in the number and width of their heads."""

Shapes = Mapping[str, tuple[int, ...]]


def outer_shapes(layers: Layers) -> Shapes:
    """Of the tensors outside the layers, by full name. The rows of the vocabulary are tokenizer.py's to compare."""
    width = natural(layers.checkpoint.text_config.get("hidden_size"))
    heads = [name for name in layers.checkpoint.tensors if name.endswith("lm_head.weight")]
    embedding = f"{layers.prefix}embed_tokens.weight"
    return {embedding: (0, width), f"{layers.prefix}norm.weight": (width,), **dict.fromkeys(heads, (0, width))}


def expected_shapes(layers: Layers, layer: Layer) -> Shapes:
    """Of the tensors of a layer, by the name inside it, `*` for an expert's number."""
    config = layers.checkpoint.text_config
    width = natural(config.get("hidden_size"))
    norms = dict.fromkeys(("input_layernorm.weight", "post_attention_layernorm.weight"), (width,))
    inner = natural(config.get("intermediate_size"))
    expert = natural(config.get("moe_intermediate_size"))
    return {
        **norms,
        **_feed("mlp.", width, inner),
        **_feed("mlp.experts.*.", width, expert),
        **({} if layers.family.name in UNEVEN else _latent(config) or _grouped(layers, layer)),
    }


def _feed(begin: str, width: int, inner: int) -> Shapes:
    both = dict.fromkeys((f"{begin}gate_proj.weight", f"{begin}up_proj.weight"), (inner, width))
    return {**both, f"{begin}down_proj.weight": (width, inner)}


def _latent(config: Mapping[str, Any]) -> Shapes:
    """Multi-head latent attention; nothing for a config that has none."""
    rank, rope, plain, value, heads, width, query = (
        natural(config.get(key))
        for key in (
            "kv_lora_rank",
            "qk_rope_head_dim",
            "qk_nope_head_dim",
            "v_head_dim",
            "num_attention_heads",
            "hidden_size",
            "q_lora_rank",
        )
    )
    if not (rank and rope and plain and value):
        return {}
    return {
        "self_attn.q_a_proj.weight": (query, width),
        "self_attn.q_b_proj.weight": (heads * (plain + rope), query),
        "self_attn.q_proj.weight": (heads * (plain + rope), width),
        "self_attn.kv_a_proj_with_mqa.weight": (rank + rope, width),
        "self_attn.kv_b_proj.weight": (heads * (plain + value), rank),
        "self_attn.o_proj.weight": (width, heads * value),
    }


def _grouped(layers: Layers, layer: Layer) -> Shapes:
    """Heads in groups. Without `head_dim` a head's width follows from the query projection, as families default it
    differently; keys and values must then agree with it."""
    config, gated = layers.checkpoint.text_config, layers.family.name in GATED
    heads, width = natural(config.get("num_attention_heads")), natural(config.get("hidden_size"))
    groups = natural(config.get("num_key_value_heads"))
    query = layer.get("self_attn.q_proj.weight")
    head = natural(config.get("head_dim"))
    if not head and heads and query and query.shape and not is_quantised(query) and not gated:
        head = query.shape[0] // heads
    narrow = dict.fromkeys(("self_attn.k_proj.weight", "self_attn.v_proj.weight"), (groups * head, width))
    return {
        "self_attn.q_proj.weight": (0 if gated else heads * head, width),
        **narrow,
        "self_attn.o_proj.weight": (width, heads * head),
    }
