"""A demo model as a checkpoint folder that vLLM serves, and back."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import Qwen2Config

from serving.demo.model import CONTEXT, DemoModel, demo_config
from serving.demo.tokenizer import CHAT_TEMPLATE, END, END_OF_TEXT

MTP = "model.mtp_layers.0."


def save(model: DemoModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write weights (bfloat16), configuration, tokenizer and chat template into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_tensors(model), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes a file that only its owner reads
    end, pad = tokenizer.token_to_id(END), tokenizer.token_to_id(END_OF_TEXT)
    _write(folder / "config.json", _config(model.config) | {"eos_token_id": end, "pad_token_id": pad})
    # Temperature 0 is the default of the served model: see docs/serving/demo.md, "Temperature".
    _write(folder / "generation_config.json", {"eos_token_id": end, "pad_token_id": pad, "temperature": 0.0})
    _write(folder / "tokenizer_config.json", _tokenizer_config())
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def load(folder: Path) -> tuple[DemoModel, Tokenizer]:
    """Read back what `save` wrote, in float32. Raises `RuntimeError` if a tensor is missing or left over."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = DemoModel(demo_config(tokenizer.get_vocab_size()))
    tensors = load_file(folder / "model.safetensors")
    model.load_state_dict({_inner(name): tensor.float() for name, tensor in tensors.items()})
    return model, tokenizer


def _tensors(model: DemoModel) -> dict[str, torch.Tensor]:
    return {_outer(name): value.to(torch.bfloat16).contiguous() for name, value in model.state_dict().items()}


def _outer(name: str) -> str:
    """Our parameter name -> the name in a MiMo checkpoint."""
    if name.startswith("mtp."):
        return MTP + name.removeprefix("mtp.").removeprefix("block.")
    return name.removeprefix("main.")


def _inner(name: str) -> str:
    if not name.startswith(MTP):
        return f"main.{name}"
    rest = name.removeprefix(MTP)
    return f"mtp.{rest}" if rest.split(".")[0] in _OWN else f"mtp.block.{rest}"


_OWN = frozenset({"token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"})


def _config(config: Qwen2Config) -> dict[str, object]:
    copied = (
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
        "max_position_embeddings rms_norm_eps tie_word_embeddings use_sliding_window hidden_act"
    )
    return {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "qwen2",
        "num_nextn_predict_layers": 1,
        "torch_dtype": "bfloat16",
        "rope_theta": 10000.0,
        **{key: getattr(config, key) for key in copied.split()},
    }


def _tokenizer_config() -> dict[str, object]:
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "model_max_length": CONTEXT,
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
    }


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
