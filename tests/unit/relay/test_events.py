"""What an event means to the gateway, and cutting fields out of one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.call import Usage
from gateway.relay.events import Seen, cut, plain, read, usage_of, without
from tests.fakes import chunk, event

TOKENS: list[dict[str, Any]] = [
    {"content": "a"},
    {"reasoning": "a"},
    {"reasoning_content": "a"},
    {"tool_calls": [{"id": "x"}]},
    {"refusal": "a"},
    {"x_new": {"a": 1}},
    {"tool_calls": [{"index": 0, "type": "function", "function": {"name": "f", "arguments": ""}}]},
    {"reasoning_details": [{"type": "reasoning.text", "text": "a", "format": "x", "index": 0}]},
]


NONE: list[dict[str, Any]] = [
    {"reasoning_details": [{"type": "reasoning.text", "text": "", "format": "x", "index": 1}]},
    {"role": "assistant", "name": "bot", "provider_specific_fields": {"a": "b"}},
    {"annotations": [{}], "audio": {"data": ""}},
]


@pytest.mark.parametrize("delta", TOKENS)
def test_every_filled_delta_field_is_a_token(delta: dict[str, Any]) -> None:
    assert read(chunk(role="assistant", **delta)).token


@pytest.mark.parametrize(
    "delta", [{}, {"role": "assistant"}, {"content": ""}, {"content": None}, {"tool_calls": []}, *NONE]
)
def test_a_role_or_an_empty_field_is_none(delta: dict[str, Any]) -> None:
    assert not read(event({"choices": [{"index": 0, "delta": delta}]})).token


def test_text_of_a_completion_is_a_token() -> None:
    assert read(event({"choices": [{"index": 0, "text": "a"}]})).token
    assert not read(event({"choices": [{"index": 0, "text": ""}]})).token


def test_which_choices_have_finished() -> None:
    choices: list[dict[str, Any]] = [
        {"index": n, "delta": {}, "finish_reason": f} for n, f in ((0, "stop"), (1, None), (2, "length"))
    ]
    assert read(event({"choices": choices})).finished == (0, 2)
    assert read(event({"choices": [{"finish_reason": "stop"}]})).finished == (0,)


ODD = [
    b": comment\n\n",
    b"\n\n",
    b"data:\n\n",
    b"data: nonsense\n\n",
    b"data: [1]\n\n",
    b'data: "[DONE]"\n\n',
    b"data: \xff\xfe\n\n",
    b"data: " + b"[" * 100_000 + b"\n\n",
]


@pytest.mark.parametrize("raw", ODD, ids=[repr(raw[:20]) for raw in ODD])
def test_what_is_no_object_is_nothing_in_particular(raw: bytes) -> None:
    assert read(raw) == Seen()


@pytest.mark.parametrize("choices", [None, [], {}, "x", 5, [None], [[]], ["x"], [{"delta": 5}], [{"delta": None}]])
def test_odd_choices_are_no_answer_and_no_fault(choices: Any) -> None:
    seen = read(event({"choices": choices}))
    assert (seen.token, seen.finished, seen.error) == (False, (), None)


@pytest.mark.parametrize(
    "raw", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [DONE] \r\n\r\n", b"\ndata: [DONE]\r\r"]
)
def test_the_end(raw: bytes) -> None:
    assert read(raw).done


@pytest.mark.parametrize("inner", [b"1", b'""'])
def test_a_delta_of_any_depth_is_read(inner: bytes) -> None:
    deep = b'{"a":' * 900 + inner + b"}" * 900
    assert read(b'data: {"choices":[{"delta":{"x":%b}}]}\n\n' % deep).token


@pytest.mark.parametrize("error", [{"message": "x"}, "x", {"code": 500}])
def test_an_error(error: Any) -> None:
    seen = read(event({"error": error}))
    assert seen.error is not None
    assert (json.loads(seen.error)["error"], seen.bare) == (error, False)


DIED = {"message": "engine died", "code": 500}


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (event({"object": "error", **DIED}), {"object": "error", **DIED}),
        (b"event: error\n" + event(DIED), DIED),
        (b"event:error\r\n" + event(DIED), DIED),
        (event({"detail": "engine died"}), {"detail": "engine died"}),
        (event({"choices": [{"delta": {}, "finish_reason": "error", "error": DIED}]}), DIED),
    ],
)
def test_an_error_of_another_shape(raw: bytes, error: Any) -> None:
    seen = read(raw)
    assert seen.error is not None
    assert json.loads(seen.error) == {"error": error}


@pytest.mark.parametrize("nothing", [None, "", {}, [], False, 0])
def test_an_empty_error_is_none(nothing: Any) -> None:
    seen = read(event({"error": nothing, "choices": [{"delta": {"content": "x"}}]}))
    assert (seen.error, seen.token) == (None, True)
    assert read(event({"error": nothing, "choices": []})).error is None


ODD = [b'{"content":"a","logprob":NaN}', b'{"content":"a","logprob":-Infinity}', rb'{"content":"\ud83e"}']


@pytest.mark.parametrize("odd", ODD)
def test_an_event_that_is_nearly_json_is_read(odd: bytes) -> None:
    start = b'data: {"choices":[{"index":1,"delta":%b,"finish_reason":"stop"}]' % odd
    seen = read(start + b',"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n')
    assert (seen.token, seen.finished, seen.usage) == (True, (1,), Usage(3, 1, reported=True))
    left = without(start + b',"usage":5}\n\n', frozenset({"usage"}))
    assert left.endswith(b"\n\n")
    assert repr(json.loads(left[6:])) == repr(json.loads(start[6:] + b"}"))  # NaN is not equal to itself


USAGES: list[tuple[Any, Usage | None]] = [
    ({"prompt_tokens": 3, "completion_tokens": 1}, Usage(3, 1, reported=True)),
    ({"prompt_tokens": 3}, Usage(3, 0, reported=True)),
    (
        {
            "prompt_tokens": 9,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        Usage(9, 5, 4, 2, True),
    ),
    (
        {
            "prompt_tokens": 2,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        Usage(2, 1, 2, 1, True),
    ),
    ({"prompt_tokens": 3, "prompt_tokens_details": None, "completion_tokens_details": []}, Usage(3, 0, reported=True)),
    ({"prompt_tokens": -3, "completion_tokens": True}, None),
    ({"prompt_tokens": "3", "completion_tokens": 1.5}, None),
    ({"prompt_tokens": 1 << 70, "completion_tokens": 0}, None),
    ({}, None),
    (None, None),
    ([], None),
]


@pytest.mark.parametrize(("value", "usage"), USAGES)
def test_usage(value: Any, usage: Usage | None) -> None:
    assert usage_of(value) == usage


CUTS: list[tuple[bytes, bytes]] = [
    (b'data: {"a":1.50,"usage":null}\n\n', b'data: {"a":1.50}\n\n'),
    (b'data: {"usage":{"x":[1,2]},"a" : "\\u00e9"}\n\n', b'data: {"a":"\\u00e9"}\n\n'),
    (b'event: x\r\ndata:{"a":1,"usage":{}}\r\n\r\n', b'event: x\r\ndata:{"a":1}\r\n\r\n'),
    (b'\ndata: {"a":1,"usage":{}}\r\n\r', b'\ndata: {"a":1}\r\n\r'),
    (b'data: {"a":1,\ndata: "usage":{}}\n\n', b'data: {"a":1}\n\n'),
    (b'data: {"usage":{}}\n\n', b"data: {}\n\n"),
    (b'data: {"usage":{}}\nx: y\ndata\n\n', b"x: y\ndata: {}\n\n"),
    (b'data\rdata: {"usage":{}}\n\n', b"data: {}\n\n"),
    (b'data\rdata:{"a":[1,\rdata:2],"usage":{}}\rid: 1\r\r', b'data:{"a":[1, 2]}\rid: 1\r\r'),
    (b': {"usage":1}\ndata: {"usage":1}\n\n', b': {"usage":1}\ndata: {}\n\n'),
]


@pytest.mark.parametrize(("raw", "left"), CUTS)
def test_cutting_a_field_out(raw: bytes, left: bytes) -> None:
    assert without(raw, frozenset({"usage"})) == left


PLAIN = [chunk("Hi"), chunk("", "assistant"), chunk(reasoning="x"), chunk('"error" [DONE) "usage":'), chunk("Hi") * 3]
NOTED = [
    b"data: [DONE]\n\n",
    event({"error": {}}),
    chunk(usage=(1, 1)),
    chunk(finish="stop"),
    chunk("a").replace(b"\n", b"\r\n"),
    b": comment\n\n",
    b"event: x\n" + chunk("a"),
    chunk("a") + b": comment\n\n",
    b"id: 5\n\n",
    chunk("a")[:-1],
    chunk("a") + chunk("b")[:-9],
    chunk("a") + b"\n",
    chunk("a") + b"id: 5\n" + chunk("b"),
    b"data: {\ndata: }\n\n",
]


@pytest.mark.parametrize("raw", PLAIN)
def test_plain_content_passes_unread(raw: bytes) -> None:
    assert plain(raw) == raw.count(b"\n\n")


@pytest.mark.parametrize("raw", NOTED)
def test_whatever_could_matter_is_read(raw: bytes) -> None:
    assert plain(raw) == 0


def test_what_is_cut_out_is_only_at_the_top() -> None:
    deep = {"choices": [{"usage": 1}], "x": {"usage": 2}, "usage": 3}
    left = json.loads(without(event(deep), frozenset({"usage"}))[6:])
    assert left == {"choices": [{"usage": 1}], "x": {"usage": 2}}


def test_a_name_that_is_not_utf8_hinders_no_cut() -> None:
    assert json.loads(cut(b'{"\xff":1,"metrics":2,"choices":[]}', frozenset({"metrics"})))["choices"] == []
