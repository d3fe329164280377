"""Tokenizers of each format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.checkpoint import CheckpointError, inspect
from serving.checkpoint.tokenizer import read_tokenizer, thinks
from tests.unit.serving.checkpoint.tiny import dense, write_tokenizer


def test_tokens_and_digest_of_a_fast_one(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, 50)
    one = read_tokenizer(tmp_path)
    assert one is not None
    assert (one.tokens, one.added) == (50, {"<end>": 49})
    write_tokenizer(tmp_path, 50, "other")
    other = read_tokenizer(tmp_path)
    assert other is not None
    assert (other.tokens, other.digest == one.digest) == (50, False)


def test_a_unigram_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": [["a", -1.0], ["b", -2.0]]}}))
    found = read_tokenizer(tmp_path)
    assert found is not None
    assert found.tokens == 2


def test_tiktoken_counts_lines_and_added_tokens(tmp_path: Path) -> None:
    (tmp_path / "tiktoken.model").write_bytes(b"YQ== 0\nYg== 1\n")
    decoder = {"5": {"content": "<end>"}, "x": {"content": "no"}, "7": "no"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    found = read_tokenizer(tmp_path)
    assert found is not None
    assert (found.file, found.tokens, found.added) == ("tiktoken.model", 6, {"<end>": 5})


def test_sentencepiece_is_not_counted(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "c")
    (path / "tokenizer.json").rename(path / "tokenizer.model")
    assert [f.text for f in inspect(path).findings if f.code == "tokenizer"] == [
        "the vocabulary of tokenizer.model was not counted"
    ]


@pytest.mark.parametrize("content", [{}, {"model": 1}, {"model": {"vocab": {"a": "0"}}}, {"model": {"vocab": 3}}])
def test_one_without_a_vocabulary_is_refused(content: object, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="holds no vocabulary"):
        read_tokenizer(tmp_path)


def test_an_end_token_of_another_id_is_told(tmp_path: Path) -> None:
    tiny = dense()
    tiny.config["eos_token_id"] = [1, 2]
    told = [f for f in inspect(tiny.build(tmp_path / "c")).findings if f.code == "end-token"]
    assert [(f.severity, f.text) for f in told] == [
        ("note", "eos_token_id is [1, 2] in config.json, the tokenizer's '<end>' is 95")
    ]


def test_none_at_all(tmp_path: Path) -> None:
    assert read_tokenizer(tmp_path) is None


@pytest.mark.parametrize(
    ("file", "content", "thinking"),
    [
        ("chat_template.jinja", "{% if enable_thinking %}<think>{% endif %}", True),
        ("chat_template.jinja", "<|channel|>analysis<|message|>", True),
        ("chat_template.jinja", "{{ content.split('</think>')[-1] }}", False),
        ("chat_template.jinja", b"\xff", False),
        ("chat_template.json", json.dumps({"chat_template": "{{ '<think>' }}"}), True),
        ("tokenizer_config.json", json.dumps({"chat_template": "<think>"}), True),
        ("tokenizer_config.json", json.dumps({"chat_template": [{"name": "default", "template": "<think>"}]}), True),
        ("tokenizer_config.json", json.dumps({"chat_template": "{{ messages }}"}), False),
        ("tokenizer_config.json", "[", False),
        ("README.md", "<think>", False),
    ],
)
def test_whether_the_template_thinks(file: str, content: str | bytes, thinking: bool, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert thinks(tmp_path) is thinking
