"""What is quantised, and what the config excepts from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from serving.checkpoint.folder import read_checkpoint
from serving.checkpoint.header import Tensor
from serving.checkpoint.quantisation import check_quantisation, is_quantised, left_alone, module
from tests.unit.serving.checkpoint.tiny import dense, quantise


@pytest.mark.parametrize(
    ("config", "excepted"),
    [
        (None, False),
        ({"ignore": ["model.layers.61.eh_proj"]}, True),
        ({"ignore": ["re:.*layers\\.61\\..*"]}, True),
        ({"ignore": ["re:(", "re:.*layers\\.6\\..*"]}, False),
        ({"modules_to_not_convert": ["eh_proj"]}, True),
        ({"exclude_modules": ["model.layers.61*"]}, True),
        ({"ignored_layers": ["lm_head", 7]}, False),
        ({"dynamic": {"-:.*eh_proj.*": {}}}, True),
        ({"ignore": "eh_proj", "dynamic": []}, False),
    ],
)
def test_exceptions_of_each_format(config: Mapping[str, Any] | None, excepted: bool) -> None:
    assert left_alone(config)("model.layers.61.eh_proj.weight") is excepted


def test_a_pattern_cannot_hang(tmp_path: Path) -> None:
    assert not left_alone({"ignore": ["re:(a+)+$"]})("a" * 5000 + "b")


@pytest.mark.parametrize(
    ("name", "dtype", "quantised"),
    [
        ("a.weight", "BF16", False),
        ("a.weight", "F8_E4M3", True),
        ("a.weight", "U8", True),
        ("a.weight_scale_inv", "F32", True),
        ("a.qweight", "I32", True),
        ("a.bias", "F32", False),
    ],
)
def test_what_is_quantised(name: str, dtype: str, quantised: bool) -> None:
    assert is_quantised(Tensor(name, dtype, (1,), Path("x"), 0, 4)) is quantised
    assert module(name) in ("a.weight", "a.bias")


def test_shares_are_told(tmp_path: Path) -> None:
    tiny = dense()
    quantise(tiny, ("model.layers.",))
    told = check_quantisation(read_checkpoint(tiny.build(tmp_path / "c")))
    assert [finding.code for finding in told] == ["quantisation"]
    assert told[0].text.startswith("quantised as fp8: F8_E4M3 8")


def test_another_declared_dtype_is_a_note(tmp_path: Path) -> None:
    tiny = dense()
    tiny.config["torch_dtype"] = "float32"
    told = check_quantisation(read_checkpoint(tiny.build(tmp_path / "c")))
    assert [(finding.severity, finding.code) for finding in told] == [("ok", "dtype"), ("note", "dtype-declared")]


@pytest.mark.parametrize(
    ("method", "end", "dtype", "mismatch"),
    [
        ("fp8", "qweight", "I32", "config.json says fp8, the tensors are packed integers (model.layers.0.q.qweight)"),
        (
            "fp8",
            "weight_packed",
            "I32",
            "config.json says fp8, the tensors are packed values (model.layers.0.q.weight_",
        ),
        ("awq", "weight", "F8_E4M3", "config.json says awq, the tensors are 8-bit floats (model.layers.0.q.weight)"),
        (
            "compressed-tensors",
            "qweight",
            "I32",
            "config.json says compressed-tensors, the tensors are packed integers",
        ),
        ("fp8", "weight", "F8_E4M3", None),
        ("fp8", "weight", "U8", None),
        ("gptq", "qweight", "I32", None),
        ("compressed-tensors", "weight", "F8_E4M3", None),
        ("compressed-tensors", "weight_packed", "I32", None),
        ("of_tomorrow", "qweight", "I32", None),
    ],
)
def test_another_method_than_that_of_the_tensors(
    method: str, end: str, dtype: str, mismatch: str | None, tmp_path: Path
) -> None:
    tiny = dense()
    tiny.tensors[f"model.layers.0.q.{end}"] = (dtype, (4, 4))
    tiny.config["quantization_config"] = {"quant_method": method}
    (finding,) = check_quantisation(read_checkpoint(tiny.build(tmp_path / "c")))
    assert (finding.severity, finding.code) == (
        ("error", "quantisation-mismatch") if mismatch else ("ok", "quantisation")
    )
    if mismatch:
        assert finding.text.startswith(mismatch)
        assert finding.remedy
