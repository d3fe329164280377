"""What is asked: built in, or from a file whose lines are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.parity.prompts import MAX_TOKENS, PromptsWrong, bodies


def test_the_built_in_ones_are_greedy_and_of_several_kinds() -> None:
    made = bodies(None, 100)
    assert len(made) >= 15
    assert {body["temperature"] for body in made} == {0}
    assert {(body["logprobs"], body["top_logprobs"]) for body in made} == {(True, 2)}
    assert sum("response_format" in body for body in made) >= 3


def test_a_sample_is_the_same_each_time() -> None:
    assert bodies(None, 5) == bodies(None, 5)
    assert len(bodies(None, 5)) == 5


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "x"}\n\n{"messages": [], "stream": true, "n": 2, "max_tokens": 7, "tools": [1]}\n')
    one, two = bodies(file, 10)
    assert (one["messages"], one["max_tokens"]) == ([{"role": "user", "content": "x"}], MAX_TOKENS)
    assert (two["max_tokens"], two["tools"], "stream" in two, "n" in two) == (7, [1], False, False)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"", "holds no prompt"),
        (b"\xff", "is no UTF-8 text"),
        (b'{"prompt": "x"}\nx', r"p:2: no JSON"),
        (b"[" * 100_000, r"p:1: no JSON"),
        (b'{"prompt": 5}', r"p:1: must be"),
        (b"[]", r"p:1: must be"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / "p").write_bytes(content)
    with pytest.raises(PromptsWrong, match=why):
        bodies(tmp_path / "p", 5)
