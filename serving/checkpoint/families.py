"""What each family of models calls its MTP layers, and which of vLLM's parsers fit it: one row each.

The names come from vLLM 0.32's loaders (`vllm/model_executor/models/*_mtp.py`) and its map from model types to MTP
(`SpeculativeConfig.hf_config_override`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """One row. Names of tensors hold `{p}` for the prefix of the language model and `{i}` for the layer's number."""

    name: str
    model_types: frozenset[str]
    architectures: frozenset[str] = frozenset()
    layer: str = ""
    """What the names of one MTP layer's tensors begin with; empty: the family has no MTP."""
    count_key: str = ""
    """The key of the config that declares how many there are."""
    after_main: bool = False
    """MTP layers are numbered on from the main ones."""
    extras: tuple[str, ...] = ()
    """Tensors that each MTP layer has beside a decoder layer's."""
    joint: tuple[str, ...] = ()
    """Tensors that all MTP layers have together, by full name."""
    shared: tuple[str, ...] = ()
    """Copies of the main model's tensors that a layer may bring."""
    block: tuple[str, ...] = ()
    """The tensors of its decoder block, where it is built otherwise than the last main layer."""
    implied: int = 0
    """Layers that vLLM assumes where the config has no such key."""
    silent: bool = False
    """vLLM starts without a word when linears of an MTP layer's decoder block are missing (measured)."""
    mapped: bool = True
    """vLLM accepts method `mtp` for it."""
    tool_parser: str = ""
    reasoning_parser: str = ""


_DEEPSEEK_EXTRAS = ("enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight")
_DEEPSEEK_SHARED = ("embed_tokens.weight", "shared_head.head.weight")
ALIAS = "num_mtp_layers"
"""Another name of `count_key` in the configs of transformers 5."""
_QWEN_JOINT = ("mtp.fc.weight", "mtp.norm.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.pre_fc_norm_embedding.weight")


def _numbered_on(
    name: str, tool: str, reasoning: str, *, types: Iterable[str] = (), architecture: str = "", mapped: bool = True
) -> Family:
    """A family whose MTP layers follow the main ones, as DeepSeek's do."""
    return Family(
        name,
        frozenset(types or (name,)),
        frozenset(filter(None, (architecture,))),
        layer="{p}layers.{i}.",
        count_key="num_nextn_predict_layers",
        after_main=True,
        extras=_DEEPSEEK_EXTRAS,
        shared=_DEEPSEEK_SHARED,
        implied=1,
        silent=True,
        mapped=mapped,
        tool_parser=tool,
        reasoning_parser=reasoning,
    )


FAMILIES: tuple[Family, ...] = (
    _numbered_on("kimi_k25", "kimi_k2", "kimi_k2", mapped=False),
    _numbered_on("kimi_k2", "kimi_k2", "kimi_k2", mapped=False),
    _numbered_on("deepseek_v3", "deepseek_v3", "deepseek_r1", types=("deepseek_v3", "deepseek_v32")),
    _numbered_on("glm4_moe", "glm45", "glm45", architecture="Glm4MoeForCausalLM"),
    Family(
        "mimo_v2",
        frozenset({"mimo_v2", "mimo_v2_flash"}),
        frozenset({"MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM", "MiMoV2OmniForCausalLM"}),
        layer="{p}mtp.layers.{i}.",
        count_key="num_nextn_predict_layers",
        extras=("enorm.weight", "hnorm.weight", "eh_proj.weight", "final_layernorm.weight"),
        block=(
            "input_layernorm.weight",
            "self_attn.o_proj.weight",
            "mlp.gate_proj.weight",
            "mlp.up_proj.weight",
            "mlp.down_proj.weight",
        ),
        implied=1,
        tool_parser="mimo",
        reasoning_parser="mimo",
    ),
    Family(
        "mimo",
        frozenset({"mimo"}),
        frozenset({"MiMoForCausalLM"}),
        layer="{p}mtp_layers.{i}.",
        count_key="num_nextn_predict_layers",
        extras=(
            "input_proj.weight",
            "token_layernorm.weight",
            "hidden_layernorm.weight",
            "final_layernorm.weight",
        ),
        silent=True,
        tool_parser="hermes",
        reasoning_parser="qwen3",
    ),
    Family(
        "qwen3_next",
        frozenset({"qwen3_next"}),
        layer="mtp.layers.{i}.",
        count_key="num_nextn_predict_layers",
        joint=_QWEN_JOINT,
        implied=1,
        tool_parser="hermes",
        reasoning_parser="qwen3",
    ),
    Family(
        "qwen3_5",
        frozenset({"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}),
        layer="mtp.layers.{i}.",
        count_key="mtp_num_hidden_layers",
        joint=_QWEN_JOINT,
        tool_parser="qwen3_coder",
        reasoning_parser="qwen3",
    ),
    Family("qwen3", frozenset({"qwen3", "qwen3_moe"}), tool_parser="hermes", reasoning_parser="qwen3"),
    Family("qwen2", frozenset({"qwen2", "qwen2_moe"}), tool_parser="hermes"),
    Family("llama", frozenset({"llama"}), tool_parser="llama3_json"),
    Family("mistral", frozenset({"mistral"}), tool_parser="mistral"),
    Family("gpt_oss", frozenset({"gpt_oss"}), tool_parser="openai", reasoning_parser="openai_gptoss"),
)
UNKNOWN = Family("unknown", frozenset())

STRAY = re.compile(r"(?:^|\.)mtp(?:_layers)?\.|\.(?:enorm|hnorm|eh_proj)\.")
"""Names that only MTP layers have, in any family."""


def family_of(config: Mapping[str, Any]) -> Family:
    """The family by architecture, which vLLM goes by too, else by model type; UNKNOWN for any other."""
    architectures = config.get("architectures")
    named = {name for name in architectures if isinstance(name, str)} if isinstance(architectures, list) else set()
    for family in FAMILIES:
        if family.architectures & named:
            return family
    return next((family for family in FAMILIES if str(config.get("model_type")) in family.model_types), UNKNOWN)
