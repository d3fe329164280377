"""Tiny checkpoints of several families, written without torch or numpy, healthy until a test breaks them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VOCABULARY = 96
WIDTH = 128
LAYERS = 2
Shape = tuple[int, ...]
WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I32": 4}


@dataclass
class Tiny:
    """A checkpoint before it is written: a test changes what it wants to be wrong."""

    config: dict[str, Any]
    tensors: dict[str, tuple[str, Shape]] = field(default_factory=dict)
    tokens: int = VOCABULARY
    template: bool = True

    @property
    def inner(self) -> dict[str, Any]:
        """The config of the language model."""
        inner: dict[str, Any] = self.config.get("text_config", self.config)
        return inner

    def drop(self, wanted: Callable[[str], bool]) -> None:
        """Lose tensors."""
        self.tensors = {name: tensor for name, tensor in self.tensors.items() if not wanted(name)}

    def dtype(self, dtype: str, wanted: Callable[[str], bool]) -> None:
        """Change the dtype of tensors."""
        self.tensors = {n: (dtype if wanted(n) else kind, shape) for n, (kind, shape) in self.tensors.items()}

    def build(self, folder: Path, shards: int = 1) -> Path:
        """Write it."""
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        write_tokenizer(folder, self.tokens)
        if self.template:
            (folder / "chat_template.jinja").write_text("{{ messages }}")
        names = list(self.tensors)
        if shards == 1:
            write(folder / "model.safetensors", self.tensors)
            return folder
        placed: dict[str, str] = {}
        for number in range(shards):
            file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
            part = names[number::shards]
            write(folder / file, {name: self.tensors[name] for name in part})
            placed |= dict.fromkeys(part, file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
        return folder


def write(file: Path, tensors: dict[str, tuple[str, Shape]], seed: int = 0) -> None:
    """A safetensors file of small random numbers (in BF16)."""
    header, body, noise = {}, b"", random.Random(seed)
    for name, (dtype, shape) in tensors.items():
        size = WIDTHS[dtype]
        for length in shape:
            size *= length
        start, body = len(body), body + small(noise, size)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, len(body)]}
    file.write_bytes(raw(json.dumps(header).encode(), body))


def small(noise: random.Random, size: int) -> bytes:
    """As BF16: between 0.008 and 0.03, of either sign."""
    numbers = bytearray(noise.randbytes(size))
    numbers[1::2] = bytes(0x3C | (byte & 0x80) for byte in numbers[1::2])
    return bytes(numbers)


def raw(header: bytes, body: bytes = b"", length: int | None = None) -> bytes:
    """A file as the format has it; `length` is what it claims its header has."""
    return (len(header) if length is None else length).to_bytes(8, "little") + header + body


def write_tokenizer(folder: Path, tokens: int, word: str = "t") -> None:
    """Of `tokens` words; the last is the one that ends a reply."""
    end = {"id": tokens - 1, "content": "<end>", "special": True}
    model = {"type": "WordLevel", "vocab": {f"{word}{n}": n for n in range(tokens - 1)}}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": [end]}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))


def _config(architecture: str, model_type: str, **more: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": 256,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "eos_token_id": VOCABULARY - 1,
        **more,
    }


def _shell(prefix: str, head: str = "lm_head.weight") -> dict[str, tuple[str, Shape]]:
    """What is outside the layers."""
    rows = ("BF16", (VOCABULARY, WIDTH))
    return {f"{prefix}embed_tokens.weight": rows, f"{prefix}norm.weight": ("BF16", (WIDTH,)), head: rows}


def _add(tensors: dict[str, tuple[str, Shape]], begin: str, shapes: dict[str, Shape]) -> None:
    tensors |= {f"{begin}{name}.weight": ("BF16", shape) for name, shape in shapes.items()}


def _mlp(width: int, begin: str = "mlp") -> dict[str, Shape]:
    both = dict.fromkeys((f"{begin}.gate_proj", f"{begin}.up_proj"), (width, WIDTH))
    return {**both, f"{begin}.down_proj": (WIDTH, width)}


NORMS: dict[str, Shape] = dict.fromkeys(("input_layernorm", "post_attention_layernorm"), (WIDTH,))
MLA: dict[str, Shape] = {
    "self_attn.q_a_proj": (64, WIDTH),
    "self_attn.q_a_layernorm": (64,),
    "self_attn.q_b_proj": (4 * 192, 64),
    "self_attn.kv_a_proj_with_mqa": (576, WIDTH),
    "self_attn.kv_a_layernorm": (512,),
    "self_attn.kv_b_proj": (4 * 256, 512),
    "self_attn.o_proj": (WIDTH, 4 * 128),
}


def _gqa(groups: int, head: int = 32) -> dict[str, Shape]:
    narrow = dict.fromkeys(("self_attn.k_proj", "self_attn.v_proj"), (groups * head, WIDTH))
    return {"self_attn.q_proj": (4 * head, WIDTH), **narrow, "self_attn.o_proj": (WIDTH, 4 * head)}


def _experts(count: int = 4) -> dict[str, Shape]:
    found: dict[str, Shape] = {"mlp.gate": (count, WIDTH), **_mlp(64, "mlp.shared_experts")}
    for number in range(count):
        found |= _mlp(64, f"mlp.experts.{number}")
    return found


DEEPSEEK_EXTRAS: dict[str, Shape] = {
    **dict.fromkeys(("enorm", "hnorm", "shared_head.norm"), (WIDTH,)),
    "eh_proj": (WIDTH, 2 * WIDTH),
    **dict.fromkeys(("embed_tokens", "shared_head.head"), (VOCABULARY, WIDTH)),
}


def deepseek_v3(model_type: str = "deepseek_v3", prefix: str = "model.", head: str = "lm_head.weight") -> Tiny:
    """MLA and experts, one dense layer first, one MTP layer after the last."""
    config = _config(
        "DeepseekV3ForCausalLM",
        model_type,
        num_nextn_predict_layers=1,
        moe_intermediate_size=64,
        first_k_dense_replace=1,
        n_shared_experts=1,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        q_lora_rank=64,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        routed_scaling_factor=1.0,
        norm_topk_prob=True,
    )
    tiny = Tiny(config, _shell(prefix, head))
    _add(tiny.tensors, f"{prefix}layers.0.", {**NORMS, **MLA, **_mlp(256)})
    for number, extras in enumerate(({}, DEEPSEEK_EXTRAS), 1):
        _add(tiny.tensors, f"{prefix}layers.{number}.", {**NORMS, **MLA, **_experts(), **extras})
        tiny.tensors[f"{prefix}layers.{number}.mlp.gate.e_score_correction_bias"] = ("F32", (4,))
    return tiny


def kimi_k2() -> Tiny:
    """The same under another model type."""
    return deepseek_v3("kimi_k2")


def kimi_k25() -> Tiny:
    """Multimodal: the config is nested, and the names of the tensors have a prefix."""
    tiny = deepseek_v3("kimi_k2", "language_model.model.", "language_model.lm_head.weight")
    inner = {**tiny.config, "model_type": "kimi_k2"}
    tiny.config = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "text_config": inner,
        "vision_config": {"model_type": "moonvit3d"},
    }
    tiny.tensors["vision_tower.encoder.blocks.0.norm0.weight"] = ("BF16", (WIDTH,))
    tiny.tensors["mm_projector.pre_norm.weight"] = ("BF16", (WIDTH,))
    return tiny


def glm4_moe() -> Tiny:
    """GQA and experts, one MTP layer after the last."""
    config = _config("Glm4MoeForCausalLM", "glm4_moe", num_nextn_predict_layers=1, num_key_value_heads=2, head_dim=32)
    tiny = Tiny(config, _shell("model."))
    _add(tiny.tensors, "model.layers.0.", {**NORMS, **_gqa(2), **_mlp(256)})
    for number, extras in enumerate(({}, DEEPSEEK_EXTRAS), 1):
        _add(tiny.tensors, f"model.layers.{number}.", {**NORMS, **_gqa(2), **_experts(), **extras})
    return tiny


def mimo() -> Tiny:
    """Dense, with an MTP layer under a name of its own."""
    config = _config("MiMoForCausalLM", "mimo", num_nextn_predict_layers=1, num_key_value_heads=1)
    tiny = dense_layers(Tiny(config, _shell("model.")))
    norms = dict.fromkeys(("token_layernorm", "hidden_layernorm", "final_layernorm"), (WIDTH,))
    extras: dict[str, Shape] = {**norms, "input_proj": (WIDTH, 2 * WIDTH)}
    _add(tiny.tensors, "model.mtp_layers.0.", {**NORMS, **_gqa(1), **_mlp(256), **extras})
    return tiny


def qwen3_5() -> Tiny:
    """Linear attention but in the last layer; MTP under `mtp.`, the config nested."""
    inner = _config("", "qwen3_5_text", mtp_num_hidden_layers=1, num_key_value_heads=2, head_dim=32)
    inner["layer_types"] = ["linear_attention", "full_attention"]
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": inner}
    tiny = Tiny(config, _shell("model.language_model."))
    linear: dict[str, Shape] = {"linear_attn.in_proj_qkv": (384, WIDTH), "linear_attn.out_proj": (WIDTH, WIDTH)}
    _add(tiny.tensors, "model.language_model.layers.0.", {**NORMS, **linear, **_mlp(256)})
    _add(tiny.tensors, "model.language_model.layers.1.", {**NORMS, **_gqa(2), **_mlp(256)})
    _add(tiny.tensors, "mtp.layers.0.", {**NORMS, **_gqa(2), **_mlp(256)})
    _add(tiny.tensors, "mtp.", {"fc": (WIDTH, 2 * WIDTH), **dict.fromkeys(QWEN_NORMS, (WIDTH,))})
    return tiny


QWEN_NORMS = ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")


def mimo_v2() -> Tiny:
    """Main layers of experts, a dense MTP layer."""
    config = _config("MiMoV2FlashForCausalLM", "mimo_v2_flash", num_key_value_heads=2)
    tiny = Tiny(config, _shell("model."))
    for number in range(LAYERS):
        _add(tiny.tensors, f"model.layers.{number}.", {**NORMS, **_gqa(2), **_experts()})
    norms = dict.fromkeys(("enorm", "hnorm", "final_layernorm", "input_layernorm", "pre_mlp_layernorm"), (WIDTH,))
    _add(tiny.tensors, "model.mtp.layers.0.", {**norms, "eh_proj": (WIDTH, 2 * WIDTH), **_gqa(2), **_mlp(256)})
    return tiny


def dense() -> Tiny:
    """Qwen3, which has no MTP."""
    return dense_layers(Tiny(_config("Qwen3ForCausalLM", "qwen3", num_key_value_heads=1), _shell("model.")))


def dense_layers(tiny: Tiny) -> Tiny:
    """Main layers of one key-value head."""
    for number in range(LAYERS):
        _add(tiny.tensors, f"model.layers.{number}.", {**NORMS, **_gqa(1), **_mlp(256)})
    return tiny


def quantise(tiny: Tiny, begins: Iterable[str]) -> None:
    """FP8 linears with scales, as DeepSeek ships them, in the layers whose names begin so."""
    starts = tuple(begins)
    for name, (_, shape) in list(tiny.tensors.items()):
        if name.startswith(starts) and name.endswith("_proj.weight") and len(shape) == 2:
            tiny.tensors[name] = ("F8_E4M3", shape)
            tiny.tensors[f"{name}_scale_inv"] = ("F32", (-(-shape[0] // 128), -(-shape[1] // 128)))
    tiny.config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
