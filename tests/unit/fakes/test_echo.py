"""The default answers and the builders of OpenAI's shapes, as an official SDK and a JSON parser see them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes import (
    DONE,
    Reply,
    Sse,
    Upstream,
    WaitFor,
    answer,
    chunk,
    completion,
    error,
    event,
    fetch,
    split,
    usage_of,
)

CHAT = "/v1/chat/completions"


def events_of(stream: bytes) -> list[Any]:
    """The JSON of each event but the last, which must be `[DONE]`."""
    *events, last, rest = stream.split(b"\n\n")
    assert (last, rest) == (b"data: [DONE]", b"")
    return [json.loads(one.removeprefix(b"data: ")) for one in events]


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}],
    } | more


async def test_a_plain_chat_repeats_the_last_user_message(upstream: Upstream) -> None:
    body = (await fetch(upstream.url, CHAT, chat("你好 there friend"))).json()
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "你好 there friend"}
    assert (body["model"], body["usage"]) == ("m", {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8})


async def test_parts_of_a_message_are_joined(upstream: Upstream) -> None:
    parts = [{"type": "text", "text": "a b"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": " c"}]
    body = (await fetch(upstream.url, CHAT, {"model": "m", "messages": [{"role": "user", "content": parts}]})).json()
    assert body["choices"][0]["message"]["content"] == "a b c"


@pytest.mark.parametrize("asked", [True, False])
async def test_a_chat_stream_shows_usage_only_if_asked(upstream: Upstream, asked: bool) -> None:
    response = await fetch(upstream.url, CHAT, chat("one two", stream=True, stream_options={"include_usage": asked}))
    role, one, two, finish, *usage = events_of(response.body)
    assert [e["choices"][0]["delta"] for e in (role, one, two, finish)] == [
        {"role": "assistant", "content": ""},
        {"content": "one"},
        {"content": " two"},
        {},
    ]
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert [(e["choices"], e["usage"]["completion_tokens"]) for e in usage] == ([([], 2)] if asked else [])


@pytest.mark.parametrize("stream", [True, False])
async def test_completions_repeat_the_prompt(upstream: Upstream, stream: bool) -> None:
    ask = {"model": "m", "prompt": "def f(x):", "stream": stream, "stream_options": {"include_usage": True}}
    response = await fetch(upstream.url, "/v1/completions", ask)
    events = events_of(response.body) if stream else [response.json()]
    assert "".join(e["choices"][0]["text"] for e in events if e["choices"]) == "def f(x):"
    assert events[-1]["usage"]["total_tokens"] == 4


async def test_embeddings_give_one_vector_per_input(upstream: Upstream) -> None:
    body = (await fetch(upstream.url, "/v1/embeddings", {"model": "m", "input": ["a", "bcd"]})).json()
    assert [row["embedding"][0] for row in body["data"]] == [1.0, 3.0]


async def test_models_and_unknown_paths_and_bad_bodies() -> None:
    async with Upstream(models=["a", "org/b"]) as up:
        assert [row["id"] for row in (await fetch(up.url, "/v1/models")).json()["data"]] == ["a", "org/b"]
        assert (await fetch(up.url, "/nowhere")).status == 404
        assert [(await fetch(up.url, CHAT, body)).status for body in (b"{", b"[]")] == [400, 400]


def test_chunks_have_exact_bytes() -> None:
    head = (
        b'data: {"id":"chatcmpl-fake","object":"chat.completion.chunk","created":1700000000,"model":"fake","choices":['
    )
    assert chunk("你") == head + '{"index":0,"delta":{"content":"你"},"finish_reason":null}]}\n\n'.encode()
    assert chunk(finish="stop", index=1) == head + b'{"index":1,"delta":{},"finish_reason":"stop"}]}\n\n'
    assert (
        chunk(x_new=[1], extra={"y": 2}) == head + b'{"index":0,"delta":{"x_new":[1]},"finish_reason":null}],"y":2}\n\n'
    )
    usage = b'"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}\n\n'
    assert chunk(usage=(3, 1)) == head + b"]," + usage
    assert answer("a", usage=(3, 1))[-2:] == [chunk(usage=(3, 1)), DONE]


def test_other_shapes() -> None:
    assert json.loads(completion("t", None, tool_calls=[1]))["choices"][0]["message"]["tool_calls"] == [1]
    assert usage_of(3, 2, cached=1, reasoning=2)["prompt_tokens_details"] == {"cached_tokens": 1}
    assert event({"a": 1}, "ping") == b'event: ping\ndata: {"a":1}\n\n'
    assert error(429, "slow", code=7, headers={"retry-after": "1"}).wire() == (
        b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-type: application/json\r\ncontent-length: 81\r\n"
        b"\r\n"
        b'{"error":{"message":"slow","type":"invalid_request_error","param":null,"code":7}}'
    )


def test_a_status_without_a_standard_phrase_has_none() -> None:
    assert Reply(status=529).wire().startswith(b"HTTP/1.1 529 \r\n")
    assert Reply(status=529, reason="Overloaded").wire().startswith(b"HTTP/1.1 529 Overloaded\r\n")


def test_a_false_length_stays_and_wire_refuses_steps() -> None:
    assert b"content-length: 9\r\n" in Reply(b"x", headers={"Content-Length": "9"}).wire().lower()
    assert Sse([b"ab", b"c"]).wire().endswith(b"\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
    with pytest.raises(TypeError):
        Sse([b"a", WaitFor.__call__]).wire()  # type: ignore[list-item]


def test_split_keeps_every_byte() -> None:
    assert split(b"abcdefg", 3) == [b"abc", b"def", b"g"]
    assert split(b"abcdefg", [1, 2]) == [b"a", b"bc", b"defg"]
    assert split(b"ab", [1, 1, 5]) == [b"a", b"b"]
