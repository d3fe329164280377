"""One checkpoint against another."""

from __future__ import annotations

from pathlib import Path

from serving.checkpoint import compare
from tests.unit.serving.checkpoint.tiny import VOCABULARY, mimo, write_tokenizer


def test_what_was_dropped_added_or_changed_is_counted(tmp_path: Path) -> None:
    base = mimo().build(tmp_path / "base")
    tiny = mimo()
    tiny.drop(lambda name: "mtp_layers" in name)
    tiny.tensors["extra.weight"] = ("BF16", (4,))
    tiny.tensors["lm_head.weight"] = ("BF16", (VOCABULARY + 1, 128))
    tiny.dtype("F32", lambda name: name == "model.norm.weight")
    tuned = tiny.build(tmp_path / "tuned")
    write_tokenizer(tuned, VOCABULARY, "other")
    assert [(f.severity, f.code, f.text) for f in compare(tuned, base)] == [
        (
            "warning",
            "against-dropped",
            "against base: 13 tensors dropped (model.mtp_layers.0.final_layernorm.weight, "
            "model.mtp_layers.0.hidden_layernorm.weight, model.mtp_layers.0.input_layernorm.weight and 10 more)",
        ),
        ("note", "against-added", "against base: 1 tensors added (extra.weight)"),
        ("warning", "against-shape", "against base: 1 tensors changed in shape (lm_head.weight)"),
        ("note", "against-dtype", "against base: 1 tensors changed in dtype (model.norm.weight)"),
        ("warning", "against-tokenizer", "against base: the tokenizer is another one"),
    ]


def test_no_difference_is_said(tmp_path: Path) -> None:
    base = mimo().build(tmp_path / "base")
    assert [f.code for f in compare(mimo().build(tmp_path / "tuned", shards=2), base)] == ["against"]


def test_a_damaged_tokenizer_is_told(tmp_path: Path) -> None:
    base = mimo().build(tmp_path / "base")
    (base / "tokenizer.json").write_text("{")
    assert [f.code for f in compare(base, base)] == ["against", "against-tokenizer"]


def test_with_a_damaged_one_nothing_is_compared(tmp_path: Path) -> None:
    tuned, base = mimo().build(tmp_path / "tuned"), mimo().build(tmp_path / "base")
    weights = base / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    for pair in ((tuned, base), (base, tuned)):
        (finding,) = compare(*pair)
        assert (finding.severity, finding.code) == ("warning", "against-unread")
        assert "nothing is compared, the weights of base could not all be read: is cut off" in finding.text
