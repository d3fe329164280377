"""Whole answers: judged before they go out, or turned into the stream that was asked for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from gateway.call import ENDPOINTS, Usage
from gateway.errors import UpstreamFailure
from gateway.relay.document import Judged, as_events, judge, roughly
from gateway.speculation import Drafted
from tests.fakes import completion, to_json
from tests.wire.calls import payloads

CHAT, EMBEDDINGS = ENDPOINTS["chat"], ENDPOINTS["embeddings"]


def test_the_usage_of_a_good_answer() -> None:
    assert judge(completion("x", (3, 1)), CHAT).usage == Usage(3, 1, reported=True)
    assert judge(completion("x", None), CHAT).usage is None
    assert judge(to_json({"data": [{}], "usage": {"prompt_tokens": 2}}), EMBEDDINGS).usage == Usage(2, 0, reported=True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[NaN]}',
        b'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]',
        b'{"choices":[1],}',
        b"Hello",
        b'{"choices":[1]}\xff',
        b'{"choices":[1]} {}',
        b'{"choices":[1],"usage":{"\xff":1}}',
        b'{"a":' + b"[" * 100_000,
    ],
)
def test_what_is_not_strict_json_passes(body: bytes) -> None:
    assert judge(body, CHAT).usage is None


USED = b'"usage":{"prompt_tokens":3,"completion_tokens":1}'
NEARLY = b'{"choices":[{"logprobs":NaN,"message":{"content":"12345"}}],%b}' % USED


@pytest.mark.parametrize(
    "body",
    [
        NEARLY,
        b"\xef\xbb\xbf" + NEARLY,
        NEARLY.replace(b"NaN", b"-Infinity"),
        NEARLY.replace(b"NaN", b"null").replace(b"12345", rb"cut \ud83e"),
        b': hi\n\ndata: {"choices":[{}],%b}\n\ndata: [DONE]' % USED,
    ],
)
def test_the_usage_of_what_is_nearly_json(body: bytes) -> None:
    assert judge(body, CHAT).usage == Usage(3, 1, reported=True)


@pytest.mark.parametrize(
    "body",
    [
        b'\xef\xbb\xbf{"error":{"message":"boom"}}',
        b'{"error":{"message":"boom"},"x":NaN}',
        b'data: {"error":{"message":"boom"}}\n\n',
        b'event: error\r\ndata: {"error":{"message":"boom"}}',
    ],
)
def test_an_error_in_what_is_nearly_json(body: bytes) -> None:
    with pytest.raises(UpstreamFailure) as failure:
        judge(body, CHAT)
    assert failure.value.cause == "embedded"
    assert failure.value.body is not None
    told = msgspec.json.decode(failure.value.body)
    assert told.get("error", told) == {"message": "boom"}


@pytest.mark.parametrize("nothing", [b"null", b'""', b"{}", b"false", b"0", b"[]"])
@pytest.mark.parametrize("body", [NEARLY, NEARLY.replace(b"NaN", b"null")])
def test_an_empty_error_beside_an_answer_is_none(body: bytes, nothing: bytes) -> None:
    assert judge(b'{"error":%b,%b' % (nothing, body[1:]), CHAT).usage == Usage(3, 1, reported=True)


def test_events_that_nobody_asked_for_are_counted() -> None:
    assert judge(event_of("x") * 7 + b"data: [DONE]", CHAT) == Judged(None, text=True, tokens=7)


@pytest.mark.parametrize("end", [1, 10, 15, -1])
def test_an_answer_that_ends_in_its_middle(end: int) -> None:
    with pytest.raises(UpstreamFailure) as failure:
        judge(completion("x", (3, 1))[:end], CHAT)
    assert failure.value.cause == "cut"


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"choices": [{"message": {"role": "assistant", "content": "x" * 40}}]}, 10),
        ({"choices": [{"message": {"content": "x" * 40}}, {"message": {"content": "x" * 41}}]}, 21),
        ({"choices": [{"message": {"content": None, "tool_calls": [{"function": {"arguments": "x" * 8}}]}}]}, 2),
        ({"choices": [{"text": "重构代码"}]}, 3),
        ({"choices": [{"message": {"content": ""}}]}, 0),
        ({"data": [{"embedding": "AAAA"}]}, 0),
        ({"choices": "none"}, 0),
    ],
)
def test_an_answer_without_usage_has_tokens_by_its_text(answer: dict[str, Any], tokens: int) -> None:
    assert roughly(to_json(answer)) == tokens


def test_all_bytes_of_what_is_no_json_are_text() -> None:
    assert roughly(b"Hello") == 2
    assert roughly(NEARLY) == 2


BAD = [
    b"",
    b" \n",
    b"<html>",
    b" <!doctype html>",
    b"null",
    b"5",
    b"[]",
    b'"x"',
    b"{}",
    b'{"choices":null}',
    b'{"choices":[]}',
    b"data: [DONE]\n\n",
    b": ping\n\n",
    b"\xef\xbb\xbf<!doctype html>",
]


@pytest.mark.parametrize("body", BAD)
def test_what_is_no_answer(body: bytes) -> None:
    with pytest.raises(UpstreamFailure) as failure:
        judge(body, CHAT)
    assert failure.value.cause == "bad_response"


def test_an_error_in_the_answer() -> None:
    with pytest.raises(UpstreamFailure) as failure:
        judge(b'{"error":{"message":"x"},"choices":[1]}', CHAT)
    assert (failure.value.cause, failure.value.body) == ("embedded", b'{"message":"x"}')
    assert judge(b'{"error":null,"choices":[1]}', CHAT).usage is None


def test_each_endpoint_has_its_own_field() -> None:
    with pytest.raises(UpstreamFailure):
        judge(b'{"choices":[1]}', EMBEDDINGS)


def test_a_whole_completion_as_a_stream() -> None:
    one, usage, done = payloads(as_events(completion("Hi", (3, 1), extra={"x": 1.5}), usage_wanted=True))
    assert one["object"] == usage["object"] == "chat.completion.chunk"
    delta = {"role": "assistant", "content": "Hi"}
    assert one["choices"] == [{"index": 0, "finish_reason": "stop", "delta": delta}]
    assert (one["x"], usage["choices"], usage["usage"]["prompt_tokens"], done) == (1.5, [], 3, "[DONE]")
    assert len(payloads(as_events(completion("Hi", (3, 1)), usage_wanted=False))) == 2


def test_tool_calls_get_an_index() -> None:
    calls = [{"id": "a"}, {"id": "b", "index": 7}]
    one, _ = payloads(as_events(completion(None, None, tool_calls=calls), usage_wanted=True))
    assert one["choices"][0]["delta"]["tool_calls"] == [{"id": "a", "index": 0}, {"id": "b", "index": 7}]


def test_text_completions_keep_their_shape() -> None:
    whole = {"object": "text_completion", "choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]}
    assert payloads(as_events(to_json(whole), usage_wanted=True)) == [whole, "[DONE]"]


ODD: list[Any] = [
    {"choices": 5},
    {"choices": [5]},
    {"choices": {}},
    {"choices": [{"message": 5}]},
    {"choices": [{"message": {"tool_calls": 5}}]},
    {"choices": [{"message": {"tool_calls": [5]}}]},
    {"choices": [{"message": {"tool_calls": {"a": 1}}}]},
    {},
    [],
    None,
]


@pytest.mark.parametrize("body", [b"{", b'{"choices":[NaN]}', b"[" * 100_000, *map(to_json, ODD)], ids=lambda b: b[:40])
def test_what_is_no_completion_is_refused(body: bytes) -> None:
    with pytest.raises(UpstreamFailure) as failure:
        as_events(body, usage_wanted=True)
    assert failure.value.cause == "bad_response"


def test_what_an_engine_tells_of_speculation() -> None:
    told = {"speculative_decoding": {"num_spec_steps": 5, "num_draft_tokens": 10, "num_accepted_draft_tokens": 7}}
    judged = judge(completion("x", extra={"metrics": told}), CHAT)
    assert judged.drafted == Drafted(5, 10, 7)
    assert bytes(judged.choices).startswith(b"[")
    for other in ({}, None, 5, {"queue_time": 1}, {"speculative_decoding": None}):
        assert judge(completion("x", extra={"metrics": other}), CHAT).drafted is None


def test_texts_deep_down_are_not_counted() -> None:
    deep = b'{"a":' * 900 + b'"x"' + b"}" * 900
    assert roughly(b'{"choices":[{"message":{"content":%b,"b":"12345678"}}]}' % deep) == 2


def test_long_events_and_texts_that_nobody_asked_for_are_not_looked_into() -> None:
    assert judge(b'data: {"error":"x"}\n\n' + b"data: {}\n\n" * 10_000, CHAT) == Judged(None, tokens=10_000)
    assert not judge(b"x" * 100_000, CHAT).text
    assert judge(b"x" * 1000, CHAT).text


def test_of_what_is_long_and_no_strict_json_the_usage_at_its_end_is_read() -> None:
    long = NEARLY.replace(b"12345", b"x" * (1 << 20))
    assert judge(long, CHAT).usage == Usage(3, 1, reported=True)
    assert roughly(long) == -(-len(long) // 4)
    told = event_of("x") * 9_000 + b'data: {"choices":[],%b}\n\ndata: [DONE]\n\n' % USED
    assert judge(told, CHAT).usage == Usage(3, 1, reported=True)
    assert judge(event_of("x") * 9_000, CHAT) == Judged(None, tokens=8_999)
    vectors = b'{"data":[%b],"x":NaN}' % b",".join([b"0.25"] * 300_000)
    assert judge(vectors, EMBEDDINGS).tokens == 0


def event_of(content: str) -> bytes:
    return b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % content.encode()


def test_a_number_beyond_all_bounds_becomes_null_in_a_stream() -> None:
    (chunk, _) = payloads(as_events(b'{"choices":[{"message":{"content":"x"},"p":1e999,"q":NaN}]}', False))
    assert isinstance(chunk, dict)
    assert (chunk["choices"][0]["p"], chunk["choices"][0]["q"]) == (None, None)


def test_what_is_too_deep_for_a_stream_is_none() -> None:
    for depth in (900, 984, 987, 990, 2000):
        deep = b"[" * depth + b"]" * depth
        with suppress(UpstreamFailure):
            as_events(b'{"choices":[{"message":{"content":%b}}]}' % deep, False)
