"""The estimate without a tokenizer: its counts, what it leaves out, any bytes. Its accuracy: tests/tokens."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.estimate import IMAGE_TOKENS, KINDS, WEIGHTS, estimate_tokens, features

PROSE = "The gateway reads a request, chooses a model and passes the answer on; it took 128 ms.\n"
CHINESE = "网关读取请求，选择模型，然后把回答原样传回去。"
CODE = 'def total(self, items):\n    return {"sum": sum(i.price for i in items), "count": len(items)}\n'
PAYLOAD = "iVBORw0KGgoAAAANSUhEUgAA/+Bc" * 5000
DATA_URL = f"data:image/png;base64,{PAYLOAD}"
AWKWARD = [b'"data:x,', b'"data":"', b"A" * 70, b'"', b"\\", b"\\ud83d", b"\\u4f", b'"tool_call', b'"type":']


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def estimate(value: Any) -> int:
    return estimate_tokens(compact(value))


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def counted(content: bytes) -> list[int]:
    """Characters and runs of each kind, the slow way."""
    firsts = [byte for byte in content if not 0x80 <= byte < 0xC0]
    kinds = [next((n for n, kind in enumerate(KINDS) if byte in kind), None) for byte in firsts]
    runs = [kind for kind, _ in groupby(kinds)]
    return [found.count(n) for n in range(len(KINDS)) for found in (kinds, runs)]


@given(st.text(st.sampled_from("ab XY09\n\"'=-_.网关，。éж🎉—\\")))
def test_characters_and_runs_are_counted_by_kind(content: str) -> None:
    raw = compact(content)
    assert features(raw)[: 2 * len(KINDS)] == counted(raw)


@given(st.binary() | st.lists(st.sampled_from(AWKWARD)).map(b"".join))
def test_any_bytes_will_do(raw: bytes) -> None:
    assert estimate_tokens(raw) >= 0


def test_every_character_is_of_one_kind() -> None:
    firsts = [*range(0x20, 0x7F), *range(0xC2, 0xF5)]
    assert [sum(byte in kind for kind in KINDS) for byte in firsts] == [1] * len(firsts)
    assert len(WEIGHTS) == len(features(b""))


def test_nothing_in_a_text_counts_less_than_nothing() -> None:
    assert min(WEIGHTS[: 2 * len(KINDS)]) >= 0
    assert estimate_tokens(b"") == 0


def test_a_text_costs_about_a_token_for_a_word_and_for_a_chinese_character() -> None:
    assert 18 <= estimate(PROSE) <= 26
    assert 16 <= estimate(CHINESE) <= 24


@pytest.mark.parametrize("content", [CHINESE, CHINESE + PROSE, "don’t 🎉", CHINESE * 20])
def test_escaped_chinese_is_chinese(content: str) -> None:
    escaped = json.dumps([user(content)], separators=(",", ":")).encode()
    assert b"\\u" in escaped
    assert estimate_tokens(escaped) == pytest.approx(estimate([user(content)]), abs=1)


def test_an_escaped_backslash_before_a_u_is_no_character() -> None:
    assert estimate(r"C:\u4f60") > estimate("C:你")


def test_messages_cost_their_framing_and_not_their_braces() -> None:
    one, ten = estimate([user("hi")]), estimate([user("hi")] * 10)
    assert 4 <= one <= 9
    assert 40 <= ten <= 80


def test_a_part_costs_its_text() -> None:
    assert estimate([user([text(PROSE)])]) == pytest.approx(estimate([user(PROSE)]), abs=4)
    assert estimate([user([text(PROSE)] * 10)]) == pytest.approx(10 * estimate(PROSE), rel=0.15)


def test_the_id_of_a_tool_call_costs_little() -> None:
    function = {"name": "read_file", "arguments": json.dumps({"path": "a.py"})}
    call = {"id": "call_Zk3vQ9xTn0aLr7PbYw2eD5mS", "type": "function", "function": function}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    answered = {"role": "tool", "tool_call_id": call["id"], "content": CODE}
    run = estimate([user("go on"), *[asked, answered] * 10]) / 10
    assert estimate(CODE) + 10 <= run <= estimate(CODE) + 60


def test_an_image_costs_a_fixed_amount_whatever_its_size() -> None:
    without = estimate([user([text(PROSE)])])
    for url in (DATA_URL, DATA_URL[:1000], "https://example.com/cat.png"):
        assert estimate([user([text(PROSE), image(url)])]) == pytest.approx(without + IMAGE_TOKENS, abs=20)
    assert estimate([user([text(PROSE), *[image(DATA_URL)] * 3])]) == pytest.approx(without + 3 * IMAGE_TOKENS, abs=40)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": DATA_URL},
        {"type": "input_audio", "input_audio": {"data": PAYLOAD, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAYLOAD}"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PAYLOAD}},
    ],
    ids=lambda part: part["type"],
)
@pytest.mark.parametrize("dump", [compact, lambda value: json.dumps(value).encode()], ids=["compact", "spaced"])
def test_every_attachment_is_found(part: dict[str, Any], dump: Any) -> None:
    assert estimate_tokens(dump([user([part, text("what is it?")])])) == pytest.approx(IMAGE_TOKENS + 10, abs=35)


def test_an_attachment_with_escaped_slashes_is_found() -> None:
    raw = compact([user([image(DATA_URL)])]).replace(b"/", b"\\/")
    assert estimate_tokens(raw) == estimate([user([image(DATA_URL)])])


def test_base64_that_is_quoted_in_a_text_is_text() -> None:
    assert estimate([user(f'<img src="{DATA_URL}">')]) > len(PAYLOAD) / 3
    assert estimate([user(json.dumps({"data": PAYLOAD}))]) > len(PAYLOAD) / 3


def test_a_field_named_data_that_holds_words_is_text() -> None:
    assert estimate([{"role": "user", "content": [], "data": PROSE * 10}]) > 150


def test_a_payload_that_does_not_end_is_a_payload() -> None:
    assert estimate_tokens(b'"' + DATA_URL.encode()) == pytest.approx(IMAGE_TOKENS, abs=2)


@pytest.mark.parametrize("escape", [False, True])
def test_a_long_text_is_judged_by_a_sample_of_it(escape: bool) -> None:
    parts = [PROSE * 7, CHINESE * 11, CODE * 5]
    content = "".join(parts * 400)
    raw = json.dumps(content, ensure_ascii=escape).encode()
    assert len(raw) > 700_000
    assert estimate_tokens(raw) == pytest.approx(400 * sum(map(estimate, parts)), rel=0.05)
