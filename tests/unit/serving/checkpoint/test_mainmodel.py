"""Damage of the main model is named, and what is healthy or not known raises no alarm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from serving.checkpoint import Finding, inspect
from serving.checkpoint.families import family_of
from serving.checkpoint.folder import read_checkpoint
from serving.checkpoint.layers import layers
from serving.checkpoint.mainmodel import check_main
from tests.unit.serving.checkpoint.tiny import (
    Tiny,
    deepseek_v3,
    dense,
    glm4_moe,
    kimi_k2,
    kimi_k25,
    mimo,
    mimo_v2,
    quantise,
    qwen3_5,
)

FAMILIES = (deepseek_v3, kimi_k2, kimi_k25, glm4_moe, mimo, mimo_v2, qwen3_5, dense)
Change = Callable[[Tiny], object]


def checked(tiny: Tiny, folder: Path) -> list[Finding]:
    checkpoint = read_checkpoint(tiny.build(folder))
    return check_main(layers(checkpoint, family_of(checkpoint.config)))


def lose(*ends: str) -> Change:
    return lambda tiny: tiny.drop(lambda name: name.endswith(ends))


def lose_all(begins: str) -> Change:
    return lambda tiny: tiny.drop(lambda name: name.startswith(begins))


def rename(change: Callable[[str], str]) -> Change:
    return lambda tiny: setattr(tiny, "tensors", {change(name): tensor for name, tensor in tiny.tensors.items()})


def reshape(name: str, *shape: int) -> Change:
    return lambda tiny: tiny.tensors.update({name: ("BF16", shape)})


def say(**values: object) -> Change:
    return lambda tiny: tiny.inner.update(values)


DAMAGE: list[tuple[str, Callable[[], Tiny], Change, str, str]] = [
    (
        "an output projection",
        mimo,
        lose("layers.1.self_attn.o_proj.weight"),
        "main-incomplete",
        "1 weight(s) missing that other layers of the same kind have (model.layers.1.self_attn.o_proj.weight)",
    ),
    ("that of all layers", mimo, lose("self_attn.o_proj.weight"), "main-incomplete", "2 weight(s) missing"),
    ("a norm", dense, lose("layers.0.input_layernorm.weight"), "main-incomplete", "layers.0.input_layernorm.weight"),
    ("the attention of a layer", dense, lose_all("model.layers.1.self_attn."), "main-incomplete", "4 weight(s)"),
    ("the MLP of a layer", dense, lose_all("model.layers.1.mlp."), "main-incomplete", "3 weight(s)"),
    (
        "of a hybrid, the full attention",
        qwen3_5,
        lose("language_model.layers.1.self_attn.o_proj.weight"),
        "main-incomplete",
        "model.language_model.layers.1.self_attn.o_proj.weight",
    ),
    (
        "one expert",
        mimo_v2,
        lose_all("model.layers.1.mlp.experts.3."),
        "main-incomplete",
        "3 weight(s) missing that other layers of the same kind have (model.layers.1.mlp.experts.3.",
    ),
    (
        "of the only dense layer, a projection",
        deepseek_v3,
        lose("layers.0.self_attn.q_a_proj.weight"),
        "main-incomplete",
        "(model.layers.0.self_attn.q_a_proj.weight)",
    ),
    (
        "and one of its MLP",
        glm4_moe,
        lose("layers.0.mlp.up_proj.weight"),
        "main-incomplete",
        "1 weight(s) missing that other layers of the same kind have (model.layers.0.mlp.up_proj.weight)",
    ),
    ("the final norm", dense, lose("model.norm.weight"), "main-incomplete", "the final norm is missing"),
    ("the head", dense, lose("lm_head.weight"), "main-incomplete", "the head is missing"),
    ("the head of a multimodal one", kimi_k25, lose("lm_head.weight"), "main-incomplete", "the head is missing"),
    ("the embedding", dense, lose("model.embed_tokens.weight"), "layers-missing", "model.embed_tokens.weight"),
    (
        "another inner width",
        mimo,
        say(intermediate_size=512),
        "main-shape",
        "model.layers.0.mlp.gate_proj.weight is [256, 128], by the config [512, 128]",
    ),
    ("fewer layers", mimo, say(num_hidden_layers=1), "main-shape", "says 1 layers, the checkpoint has a layer 1"),
    ("another width", mimo, say(hidden_size=64), "main-shape", "embed_tokens.weight is [96, 128], by the config [any,"),
    ("another number of heads", mimo, say(num_attention_heads=8), "main-shape", "self_attn.k_proj.weight is [32, 128]"),
    ("other groups", dense, say(num_key_value_heads=2), "main-shape", "self_attn.k_proj.weight is [32, 128], by"),
    ("another head", glm4_moe, say(head_dim=64), "main-shape", "q_proj.weight is [128, 128], by the config [256, 128]"),
    (
        "another latent rank",
        deepseek_v3,
        say(kv_lora_rank=256),
        "main-shape",
        "kv_a_proj_with_mqa.weight is [576, 128]",
    ),
    ("another expert", deepseek_v3, say(moe_intermediate_size=32), "main-shape", "mlp.experts.0.gate_proj.weight is"),
    (
        "one tensor of another shape",
        dense,
        reshape("model.layers.1.mlp.up_proj.weight", 200, 128),
        "main-shape",
        "model.layers.1.mlp.up_proj.weight is [200, 128], by the config [256, 128]",
    ),
    ("of PEFT", dense, rename(lambda n: f"base_model.model.{n}"), "main-names", "hold 'base_model'"),
    ("of DataParallel", mimo, rename(lambda n: f"module.{n}"), "main-names", "hold 'module'"),
    ("of torch.compile", deepseek_v3, rename(lambda n: f"_orig_mod.{n}"), "main-names", "hold '_orig_mod'"),
    ("of the inner model", dense, rename(lambda n: n.removeprefix("model.")), "main-names", "begin with 'layers.'"),
    (
        "of something else",
        dense,
        rename(lambda n: n.replace(".layers.", ".h.")),
        "main-names",
        "none of the 21 tensors",
    ),
    (
        "an adapter not merged",
        dense,
        rename(lambda n: n.replace("0.self_attn.q_proj.", "0.self_attn.q_proj.base_layer.")),
        "main-names",
        "1 tensors belong to an adapter that was not merged",
    ),
]


@pytest.mark.parametrize(
    ("make", "change", "code", "text"), [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE]
)
def test_damage_is_an_error_with_a_remedy(
    make: Callable[[], Tiny], change: Change, code: str, text: str, tmp_path: Path
) -> None:
    tiny = make()
    change(tiny)
    told = checked(tiny, tmp_path / "c")
    assert [(finding.severity, finding.code) for finding in told] == [("error", code)]
    assert text in told[0].text
    assert told[0].remedy
    assert inspect(tmp_path / "c").worst == "error"


def quantised(tiny: Tiny) -> None:
    quantise(tiny, ("model.layers.",))


def one_layer_left_plain(tiny: Tiny) -> None:
    quantise(tiny, ("model.layers.0.",))
    tiny.tensors["model.layers.0.self_attn.k_scale"] = ("F32", ())
    tiny.tensors["model.layers.0.mlp.up_proj.bias"] = ("BF16", (256,))


def packed(tiny: Tiny) -> None:
    """As AWQ packs: eight weights in one number."""
    for name in [name for name in tiny.tensors if ".layers." in name and name.endswith("_proj.weight")]:
        high, wide = tiny.tensors.pop(name)[1]
        tiny.tensors[name.replace(".weight", ".qweight")] = ("I32", (wide, high // 8))
        tiny.tensors[name.replace(".weight", ".scales")] = ("F16", (1, high))
    tiny.config["quantization_config"] = {"quant_method": "awq", "bits": 4}


def tied(tiny: Tiny) -> None:
    lose("lm_head.weight")(tiny)
    tiny.config["tie_word_embeddings"] = True


def untold(tiny: Tiny) -> None:
    lose("lm_head.weight")(tiny)
    del tiny.config["tie_word_embeddings"]


def fused(tiny: Tiny) -> None:
    lose_all("model.layers.1.mlp.experts.")(tiny)
    tiny.tensors["model.layers.1.mlp.experts.gate_up_proj"] = ("BF16", (4, 128, 128))
    tiny.tensors["model.layers.1.mlp.experts.down_proj"] = ("BF16", (4, 64, 128))


def draft(tiny: Tiny) -> None:
    tiny.tensors = {"fc.weight": ("BF16", (128, 256)), "layers.0.self_attn.q_proj.weight": ("BF16", (128, 128))}
    tiny.config["num_hidden_layers"] = 1


def embedder(tiny: Tiny) -> None:
    rename(lambda n: n.removeprefix("model."))(tiny)
    tiny.drop(lambda name: name == "lm_head.weight")
    tiny.config["architectures"] = ["Qwen3Model"]


def native(tiny: Tiny) -> None:
    """Mistral's own names."""
    rename(lambda n: n.removeprefix("model.").replace("self_attn.", "attention.").replace("mlp.", "feed_forward."))(
        tiny
    )
    tiny.config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}


def newborn(tiny: Tiny) -> None:
    tiny.config |= {"model_type": "newborn", "architectures": ["NewbornForCausalLM"]}
    lose("model.norm.weight", "lm_head.weight", "embed_tokens.weight", "layers.0.self_attn.k_proj.weight")(tiny)


HEALTHY: list[tuple[str, Callable[[], Tiny], Change]] = [
    *((make.__name__, make, lambda tiny: None) for make in FAMILIES),
    ("quantised experts", deepseek_v3, quantised),
    ("a layer left plain", dense, one_layer_left_plain),
    ("packed weights", dense, packed),
    ("a tied head", dense, tied),
    ("a head of which the config says nothing", dense, untold),
    ("experts in one tensor in some layers", mimo_v2, fused),
    ("frequencies in one layer", dense, reshape("model.layers.0.self_attn.rotary_emb.inv_freq", 16)),
    ("an EAGLE draft", dense, draft),
    ("an embedding model", dense, embedder),
    ("names of Mistral's own format", dense, native),
    ("an unknown family", dense, newborn),
    ("a config that tells no widths", dense, say(hidden_size=None, intermediate_size=[256, 256], head_dim=None)),
]


@pytest.mark.parametrize(("make", "change"), [row[1:] for row in HEALTHY], ids=[row[0] for row in HEALTHY])
def test_what_is_healthy_or_not_known_raises_no_alarm(make: Callable[[], Tiny], change: Change, tmp_path: Path) -> None:
    tiny = make()
    change(tiny)
    assert checked(tiny, tmp_path / "c") == []


def test_a_huge_number_of_layers_is_counted_not_walked(tmp_path: Path) -> None:
    tiny = dense()
    tiny.config["num_hidden_layers"] = 10**9
    told = checked(tiny, tmp_path / "c")
    assert [finding.text for finding in told] == ["999999998 of 1000000000 layers have no tensors (the first is 2)"]


def test_where_not_all_files_were_read_nothing_is_known(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "c", shards=3)
    (path / "model-00002-of-00003.safetensors").unlink()
    checkpoint = read_checkpoint(path)
    assert check_main(layers(checkpoint, family_of(checkpoint.config))) == []
