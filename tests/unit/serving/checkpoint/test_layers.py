"""Tensors sorted into layers, and the weights behind them."""

from __future__ import annotations

from pathlib import Path

from serving.checkpoint.families import family_of
from serving.checkpoint.folder import read_checkpoint
from serving.checkpoint.layers import Layers, layers, modules, natural
from tests.unit.serving.checkpoint.tiny import Tiny, deepseek_v3, kimi_k25, qwen3_5


def sorted_layers(tiny: Tiny, folder: Path) -> Layers:
    checkpoint = read_checkpoint(tiny.build(folder))
    return layers(checkpoint, family_of(checkpoint.config))


def test_layers_after_the_last_are_mtp(tmp_path: Path) -> None:
    found = sorted_layers(deepseek_v3(), tmp_path / "c")
    assert (sorted(found.main), sorted(found.mtp), found.begin(0)) == ([0, 1], [0], "model.layers.2.")
    assert "mlp.experts.0.up_proj.weight" in found.reference


def test_the_prefix_of_a_multimodal_checkpoint(tmp_path: Path) -> None:
    found = sorted_layers(kimi_k25(), tmp_path / "c")
    assert (found.prefix, sorted(found.mtp)) == ("language_model.model.", [0])


def test_an_mtp_layer_is_like_the_last_with_full_attention(tmp_path: Path) -> None:
    tiny = qwen3_5()
    for name in [name for name in tiny.tensors if ".layers.0." in name]:
        tiny.tensors[name.replace(".layers.0.", ".layers.2.")] = tiny.tensors[name]
    found = sorted_layers(tiny, tmp_path / "c")
    assert found.reference is found.main[1]
    assert len(found.joint) == 4
    assert found.begin(0) == "mtp.layers.0."


def test_parts_of_a_weight_count_as_the_weight() -> None:
    packed = ["q.weight_packed", "q.weight_scale", "q.weight_shape", "k.qweight", "k.qzeros", "v.weight", "v.bias"]
    assert modules(packed).keys() == {"q.weight", "k.weight", "v.weight", "v.bias"}


def test_experts_in_one_tensor_or_in_many_are_the_same_weights() -> None:
    single = [f"mlp.experts.{n}.{p}_proj.weight" for n in range(2) for p in ("gate", "up", "down")]
    fused = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    assert modules(single).keys() == modules(fused).keys()
    assert modules(single)["mlp.experts.*.up_proj.weight"] == {"0.", "1."}
    assert modules(["mlp.shared_experts.down_proj.weight"]).keys() == {"mlp.shared_experts.down_proj.weight"}


def test_only_whole_numbers_count() -> None:
    assert [natural(value, 7) for value in (3, 0, -1, True, "3", None, 2.0, 10**400)] == [3, 0, 7, 7, 7, 7, 7, 7]
