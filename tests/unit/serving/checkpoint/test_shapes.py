"""The shapes of published models, by their configs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serving.checkpoint.families import family_of
from serving.checkpoint.folder import Checkpoint
from serving.checkpoint.header import Tensor
from serving.checkpoint.layers import Layers
from serving.checkpoint.shapes import expected_shapes, outer_shapes

DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
QWEN2_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}


def sorted_layers(config: dict[str, Any], *names: str) -> Layers:
    tensors = {name: Tensor(name, "BF16", (1,), Path("x"), 0, 2) for name in names}
    return Layers(Checkpoint(Path(), config, tensors, ()), family_of(config), "model.", {}, {}, {})


@pytest.mark.parametrize(
    ("config", "name", "shape"),
    [
        (DEEPSEEK_V3, "self_attn.q_a_proj", (1536, 7168)),
        (DEEPSEEK_V3, "self_attn.q_b_proj", (24576, 1536)),
        (DEEPSEEK_V3, "self_attn.kv_a_proj_with_mqa", (576, 7168)),
        (DEEPSEEK_V3, "self_attn.kv_b_proj", (32768, 512)),
        (DEEPSEEK_V3, "self_attn.o_proj", (7168, 16384)),
        (DEEPSEEK_V3, "mlp.gate_proj", (18432, 7168)),
        (DEEPSEEK_V3, "mlp.experts.*.down_proj", (7168, 2048)),
        (QWEN3_8B, "self_attn.q_proj", (4096, 4096)),
        (QWEN3_8B, "self_attn.k_proj", (1024, 4096)),
        (QWEN3_8B, "self_attn.o_proj", (4096, 4096)),
        (QWEN3_8B, "mlp.down_proj", (4096, 12288)),
        (QWEN3_8B, "post_attention_layernorm", (4096,)),
        (QWEN2_7B, "self_attn.v_proj", (512, 3584)),
        ({**QWEN3_8B, "model_type": "qwen3_next"}, "self_attn.q_proj", (0, 4096)),
        ({"model_type": "qwen3"}, "mlp.gate_proj", (0, 0)),
    ],
)
def test_of_a_layer(config: dict[str, Any], name: str, shape: tuple[int, ...]) -> None:
    query = Tensor("q", "BF16", (3584, 3584), Path("x"), 0, 2)
    assert expected_shapes(sorted_layers(config), {"self_attn.q_proj.weight": query})[f"{name}.weight"] == shape


def test_where_layers_differ_nothing_is_expected_of_attention() -> None:
    assert "self_attn.o_proj.weight" not in expected_shapes(sorted_layers({**QWEN3_8B, "model_type": "mimo_v2"}), {})


def test_outside_of_the_layers() -> None:
    assert outer_shapes(sorted_layers(QWEN3_8B, "language_model.lm_head.weight")) == {
        "model.embed_tokens.weight": (0, 4096),
        "model.norm.weight": (4096,),
        "language_model.lm_head.weight": (0, 4096),
    }
