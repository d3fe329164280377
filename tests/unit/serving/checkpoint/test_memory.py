"""Bytes of the KV cache of known models, and the GPUs that fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serving.checkpoint.families import UNKNOWN
from serving.checkpoint.folder import Checkpoint
from serving.checkpoint.header import Tensor
from serving.checkpoint.layers import Layers
from serving.checkpoint.memory import Memory, memory

GQA = {"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
MLA = {"num_hidden_layers": 61, "num_attention_heads": 64, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
MHA = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
HYBRID = {"num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256}


def needed(config: dict[str, Any], weights: int = 10**9, context: int = 1000) -> Memory:
    tensor = Tensor("model.x", "BF16", (weights // 2,), Path("x"), 0, weights)
    return memory(Layers(Checkpoint(Path(), config, {"x": tensor}, ()), UNKNOWN, "model.", {}, {}, {}), context)


@pytest.mark.parametrize(
    ("config", "kind", "per_token"),
    [
        (GQA, "GQA", 36 * 2 * 8 * 128 * 2),
        (MLA, "MLA", 61 * (512 + 64) * 2),
        (MHA, "MHA", 32 * 2 * 4096 * 2),
        ({**HYBRID, "full_attention_interval": 4}, "GQA", 12 * 2 * 2 * 256 * 2),
        ({**HYBRID, "layer_types": ["linear_attention", "full_attention"]}, "GQA", 2 * 2 * 256 * 2),
        ({}, "", 0),
        ({"num_hidden_layers": 3, "num_attention_heads": 0, "hidden_size": 64}, "", 0),
    ],
)
def test_bytes_per_token(config: dict[str, Any], kind: str, per_token: int) -> None:
    assert (needed(config).kv_kind, needed(config).kv_per_token) == (kind, per_token)


@pytest.mark.parametrize(
    ("config", "weights", "context", "gpus"),
    [
        (GQA, 16 * 10**9, 40_960, {"80 GB": 1, "141 GB": 1}),
        (MLA, 595 * 10**9, 262_144, {"80 GB": 16, "141 GB": 8}),
        (GQA, 10**13, 1000, {"80 GB": None, "141 GB": None}),
        ({**GQA, "num_attention_heads": 12}, 300 * 10**9, 1000, {"80 GB": None, "141 GB": 4}),
    ],
)
def test_gpus_for_one_request(config: dict[str, Any], weights: int, context: int, gpus: dict[str, int | None]) -> None:
    assert needed(config, weights, context).gpus == gpus


def test_it_is_one_line() -> None:
    assert str(needed(MLA, 10**13)) == (
        "weights 10 TB, 68.6 KiB of KV cache per token (MLA), 70.3 MB at 1000 tokens; "
        "GPUs for one such request: more than 32 x 80 GB, more than 32 x 141 GB"
    )


def test_what_is_not_known_is_not_a_number() -> None:
    assert (
        str(needed({}, 10**9)) == "weights 1 GB, KV cache not known; GPUs for the weights alone: 1 x 80 GB, 1 x 141 GB"
    )
    assert str(needed(MLA, 10**9, 0)) == (
        "weights 1 GB, 68.6 KiB of KV cache per token (MLA); GPUs for the weights alone: 1 x 80 GB, 1 x 141 GB"
    )
