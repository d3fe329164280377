"""Values that no model can have are errors; what may be so in some family is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.checkpoint import Finding, inspect
from tests.unit.serving.checkpoint.tiny import Tiny, deepseek_v3, dense, mimo

NAN, INFINITY = float("nan"), float("inf")
MTP = "num_nextn_predict_layers"


def told(tiny: Tiny, folder: Path) -> list[Finding]:
    return [finding for finding in inspect(tiny.build(folder)).findings if finding.code == "config-value"]


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("hidden_size", None, "null"),
        ("hidden_size", "128", '"128"'),
        ("num_hidden_layers", "2", '"2"'),
        ("num_hidden_layers", -1, "-1"),
        ("num_hidden_layers", NAN, "NaN"),
        ("num_hidden_layers", 2.0, "2.0"),
        ("num_attention_heads", 0, "0"),
        ("num_attention_heads", True, "true"),
        ("num_key_value_heads", 0, "0"),
        ("vocab_size", [96], "[96]"),
        ("vocab_size", 10**400, "1" + "0" * 39),
        ("max_position_embeddings", 0, "0"),
        ("max_position_embeddings", "2048", '"2048"'),
        ("max_position_embeddings", INFINITY, "Infinity"),
        ("max_position_embeddings", -INFINITY, "-Infinity"),
        ("intermediate_size", {}, "{}"),
    ],
)
def test_what_no_model_can_have(key: str, value: object, shown: str, tmp_path: Path) -> None:
    for number, make in enumerate((dense, deepseek_v3)):
        tiny = make()
        tiny.config[key] = value
        (finding,) = told(tiny, tmp_path / f"c{number}")
        assert (finding.severity, finding.where) == ("error", "config.json")
        assert finding.text == f"{key} is {shown}, which is no whole number above 0"
        assert finding.remedy


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_position_embeddings", None),
        ("max_position_embeddings", 2048.0),
        ("head_dim", None),
        ("num_key_value_heads", None),
        ("intermediate_size", [256, 256]),
        (MTP, None),
        (MTP, 0),
    ],
)
def test_what_some_models_have(key: str, value: object, tmp_path: Path) -> None:
    tiny = mimo()
    tiny.config[key] = value
    assert told(tiny, tmp_path / "c") == []


@pytest.mark.parametrize("value", ["1", -1, True, NAN, {}, 10**30])
def test_a_count_of_mtp_layers_that_is_none(value: object, tmp_path: Path) -> None:
    tiny = mimo()
    tiny.config[MTP] = value
    (finding,) = told(tiny, tmp_path / "c")
    assert finding.severity == "warning"
    assert finding.text.endswith("which is no count of MTP layers")


def test_of_unknown_families_only_what_no_model_can_have(tmp_path: Path) -> None:
    tiny = dense()
    tiny.config |= {"model_type": "newborn", "architectures": ["NewbornForCausalLM"]}
    tiny.config |= {"max_position_embeddings": -1, "num_attention_heads": 0, "hidden_size": "64", "vocab_size": NAN}
    assert [finding.text.split()[0] for finding in told(tiny, tmp_path / "c")] == ["hidden_size", "vocab_size"]


def test_without_a_model_type_only_code_of_its_own_serves(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "c")
    config = json.loads((path / "config.json").read_text())
    for model_type, more, count in ((None, {}, 1), (["qwen3"], {}, 1), (None, {"auto_map": {"AutoConfig": "x.Y"}}, 0)):
        (path / "config.json").write_text(json.dumps({**config, "model_type": model_type, **more}))
        found = [f for f in inspect(path).findings if f.text == "config.json names no model_type: vLLM refuses"]
        assert len(found) == count


def test_an_unknown_context_is_said_to_be_so(tmp_path: Path) -> None:
    tiny = dense()
    del tiny.config["max_position_embeddings"]
    report = inspect(tiny.build(tmp_path / "c"))
    lines = {finding.code: finding for finding in report.findings}
    assert (report.context, lines["context"].severity, lines["memory"].severity) == (0, "note", "note")
    assert "is not known" in lines["context"].text
    assert "0 tokens" not in str(report.findings)
