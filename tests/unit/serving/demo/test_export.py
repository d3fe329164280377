"""Checkpoint folders: what is saved is what is read back, under the names that vLLM's MiMo code loads."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")
safetensors = pytest.importorskip("safetensors")
pytest.importorskip("transformers")
from serving.demo.export import load, save  # noqa: E402
from serving.demo.model import DemoModel, demo_config  # noqa: E402

DEMO = Path(__file__).parents[4] / "serving" / "demo"
COMMITTED = ("demo-base", "demo-ft")
MTP_LAYER = {
    "token_layernorm.weight",
    "hidden_layernorm.weight",
    "input_proj.weight",
    "final_layernorm.weight",
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    *(f"self_attn.{part}_proj.{kind}" for part in "qkv" for kind in ("weight", "bias")),
    "self_attn.o_proj.weight",
    *(f"mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
}


def names(folder: Path) -> set[str]:
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        return set(file.keys())


@torch.no_grad()
def test_a_saved_model_is_read_back(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(DEMO / "demo-base" / "tokenizer.json"))
    torch.manual_seed(1)
    model = DemoModel(demo_config(tokenizer.get_vocab_size()))
    save(model, tokenizer, tmp_path / "new")
    again, same_tokenizer = load(tmp_path / "new")
    assert same_tokenizer.to_str() == tokenizer.to_str()
    for name, value in model.state_dict().items():
        assert torch.equal(value.bfloat16().float(), again.state_dict()[name]), name


@pytest.mark.parametrize("name", COMMITTED)
def test_the_mtp_layer_has_the_names_of_a_mimo_checkpoint(name: str) -> None:
    assert {n for n in names(DEMO / name) if "mtp" in n} == {f"model.mtp_layers.0.{part}" for part in MTP_LAYER}
    assert {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"} <= names(DEMO / name)


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_checkpoint_is_complete_and_small(name: str) -> None:
    files = {path.name: path.stat().st_size for path in (DEMO / name).iterdir()}
    assert set(files) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    assert sum(files.values()) < 6_000_000
    config = json.loads((DEMO / name / "config.json").read_text())
    assert config["architectures"] == ["MiMoForCausalLM"]
    assert (config["num_nextn_predict_layers"], config["max_position_embeddings"]) == (1, 2048)
    load(DEMO / name)


@pytest.mark.parametrize("name", COMMITTED)
def test_temperature_zero_is_the_default(name: str) -> None:
    assert json.loads((DEMO / name / "generation_config.json").read_text())["temperature"] == 0.0


def test_a_checkpoint_without_an_mtp_tensor_is_refused(tmp_path: Path) -> None:
    model, tokenizer = load(DEMO / "demo-base")
    save(model, tokenizer, tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    del tensors["model.mtp_layers.0.self_attn.q_proj.weight"]
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=r"mtp\.block\.self_attn\.q_proj\.weight"):
        load(tmp_path)
