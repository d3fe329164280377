"""What cannot be distilled is refused with the reason and a way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.findings import Finding
from serving.checkpoint.folder import Checkpoint, read_checkpoint
from serving.distill.support import check, require
from tests.unit.serving.checkpoint.tiny import mimo

MIMO = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": 1}


def checkpoint(problems: tuple[Finding, ...] = (), **changed: Any) -> Checkpoint:
    return Checkpoint(Path("tuned"), {**MIMO, **changed}, {}, (), problems)


@pytest.mark.parametrize(
    "changed", [{}, {"architectures": ["Qwen2ForCausalLM"]}, {"num_nextn_predict_layers": 0}, {"model_type": "mimo"}]
)
def test_what_is_supported(changed: dict[str, Any]) -> None:
    check(checkpoint(**changed))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}, "graft"),
        ({"architectures": None, "model_type": "kimi_k2"}, "kimi_k2"),
        ({"architectures": [["MiMoForCausalLM"]]}, "distill knows MiMo"),
        ({"quantization_config": {"quant_method": "fp8"}}, "is quantised"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"tie_word_embeddings": True}, "untie it"),
        ({"num_nextn_predict_layers": 2}, "declares 2 MTP layers"),
    ],
)
def test_what_is_not(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        check(checkpoint(**changed))


def test_a_damaged_file_is_named() -> None:
    with pytest.raises(CheckpointError, match="cut off"):
        check(checkpoint((Finding("error", "file-damaged", "is cut off", "model.safetensors"),)))


def test_a_main_model_that_will_not_serve_is_refused(tmp_path: Path) -> None:
    tiny = mimo()
    check(read_checkpoint(tiny.build(tmp_path / "whole")))
    tiny.config["intermediate_size"] = 512
    with pytest.raises(CheckpointError, match=r"will not serve: config\.json contradicts the tensors"):
        check(read_checkpoint(tiny.build(tmp_path / "other")))
    tiny.config["intermediate_size"] = "256"
    with pytest.raises(CheckpointError, match="will not serve: intermediate_size is"):
        check(read_checkpoint(tiny.build(tmp_path / "text")))


def test_a_missing_package_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(CheckpointError, match="needs torch, not installed here; install the extra `vllm`"):
        require(lambda name: None if name == "torch" else object())


def test_nothing_is_missing() -> None:
    require(lambda name: object())
