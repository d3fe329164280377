"""A checkpoint's family, and that vLLM's own names are the ones in the table."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from serving.checkpoint.families import FAMILIES, UNKNOWN, family_of


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"architectures": ["MiMoForCausalLM"], "model_type": "qwen2"}, "mimo"),
        ({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2"}, "kimi_k2"),
        ({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}, "deepseek_v3"),
        ({"model_type": "qwen3_5_moe"}, "qwen3_5"),
        ({"architectures": [["x"], 3], "model_type": ["y"]}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_architecture_comes_first(config: dict[str, object], name: str) -> None:
    assert family_of(config).name == name


def test_no_model_type_is_in_two_families() -> None:
    types = [kind for family in FAMILIES for kind in family.model_types]
    assert len(types) == len(set(types))
    assert UNKNOWN not in FAMILIES


def installed(path: str) -> str:
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("vLLM is not installed")
    return (Path(spec.origin).parent / path).read_text()


def test_vllm_has_the_parsers() -> None:
    for path, wanted in (
        ("tool_parsers/__init__.py", {family.tool_parser for family in FAMILIES}),
        ("reasoning/__init__.py", {family.reasoning_parser for family in FAMILIES}),
    ):
        assert wanted - {""} <= set(re.findall(r'^    "([\w-]+)": \(', installed(path), re.MULTILINE))


def test_vllm_maps_just_those_families_to_mtp() -> None:
    text = installed("config/speculative.py")
    override = text[text.index("def hf_config_override") : text.index("return hf_config\n")]
    for family in FAMILIES:
        known = any(f'"{name}"' in override for name in family.model_types | family.architectures)
        assert known == (family.mapped and bool(family.layer)), family.name
