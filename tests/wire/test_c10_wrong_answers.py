"""C10: answers to `stream: true` that are errors, pages, whole completions or wrongly labelled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Hang, Reply, Sse, Upstream, answer, chunk, completion, error, event
from tests.harness import config_for
from tests.wire.calls import STREAM, payloads, text_of

PAGE = b"<!DOCTYPE html><html><h1>502 Bad Gateway</h1>203.0.113.9 cloudflare</html>"
HTML = {"content-type": "text/html"}
KINDS: list[dict[str, Any]] = [STREAM, {}]

REFUSALS: dict[str, tuple[Reply, int, str]] = {
    "401 without a line end": (error(401, "bad key sk-upstream-0"), 502, "upstream_auth"),
    "403": (error(403, "no access"), 502, "upstream_auth"),
    "502 page": (Reply(PAGE, 502, HTML), 502, "upstream_unavailable"),
    "503 page": (Reply(PAGE, 503, HTML), 503, "upstream_overloaded"),
    "404 page": (Reply(PAGE, 404, HTML), 404, "upstream_unknown_model"),
    "400 page": (Reply(PAGE, 400, HTML), 400, "invalid_request"),
    "200 page": (Reply(PAGE, 200, HTML), 502, "upstream_bad_response"),
    "200 page called a stream": (Sse([PAGE]), 502, "upstream_bad_response"),
    "200 and nothing": (Reply(b""), 502, "upstream_bad_response"),
    "204": (Reply(b"", 204), 502, "upstream_bad_response"),
    "200 without choices": (Reply(b'{"id":"x"}'), 502, "upstream_bad_response"),
    "200 with no choice": (Reply(b'{"choices":[]}'), 502, "upstream_bad_response"),
    "200 null": (Reply(b"null"), 502, "upstream_bad_response"),
    "200 that ends in its middle": (Reply(completion("Hi")[:-9], framing="close"), 502, "upstream_bad_response"),
    "redirect": (Reply(b"", 307, {"location": "http://203.0.113.9/"}), 502, "upstream_bad_response"),
    "500": (error(500, "boom at 203.0.113.9"), 502, "upstream_unavailable"),
    "an event stream with status 500": (Sse(answer("Hi"), status=500), 502, "upstream_unavailable"),
}


@pytest.mark.parametrize(("reply", "status", "code"), REFUSALS.values(), ids=REFUSALS)
async def test_c10_an_error_is_never_a_200(
    upstream: Upstream, gateway: StartGateway, reply: Reply, status: int, code: str
) -> None:
    upstream.script(reply, times=None)
    gw = await gateway(upstream)
    for fields in KINDS:
        answered = await gw.chat(**fields)
        assert answered.status == status
        assert answered.header("content-type") == "application/json"
        told = answered.json()["error"]
        assert (told["code"], type(told["message"])) == (code, str)
        assert told["message"]
        for secret in (b"203.0.113.9", b"html", b"sk-upstream"):
            assert secret not in answered.body
    assert [line["outcome"] for line in gw.calls()] == [code, code]


JSON_ERRORS: dict[str, tuple[int, Any, str]] = {
    "openai": (400, {"error": {"message": "x", "type": "t", "param": "p", "code": "c"}}, "x"),
    "unknown fields": (422, {"error": {"message": "x", "type": "t", "param": None, "code": None, "more": 1}}, "x"),
    "bare": (422, {"message": "x"}, "x"),
    "text": (400, {"error": "x"}, "x"),
    "fastapi text": (400, {"detail": "x"}, "x"),
    "vllm": (400, {"object": "error", "message": "x", "type": "BadRequestError", "param": None, "code": 400}, "x"),
}


@pytest.mark.parametrize(("status", "body", "message"), JSON_ERRORS.values(), ids=JSON_ERRORS)
async def test_c10_status_and_error_are_kept(
    upstream: Upstream, gateway: StartGateway, status: int, body: Any, message: str
) -> None:
    upstream.script(Reply(json.dumps(body).encode(), status), times=2)
    gw = await gateway(upstream)
    for fields in KINDS:
        answered = await gw.chat(**fields)
        assert answered.status == status
        assert answered.header("content-type") == "application/json"
        told = answered.json()["error"]
        assert told["message"] == message
        assert {"message", "type", "param", "code"} <= told.keys()
        if isinstance(body.get("error"), dict):
            assert answered.json() == body


async def test_c10_a_second_422_stays_one(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, second))
    for up in (upstream, second):
        up.script(Reply(b'{"message":"x"}', 422), times=None)
    for _ in range(2):
        answered = await gw.chat(**STREAM)
        assert (answered.status, answered.json()["error"]["message"]) == (422, "x")
    assert second.count() == 0


@pytest.mark.parametrize("code", [None, "server_error", 500, "model_overloaded"])
async def test_c10_an_error_inside_a_200(
    upstream: Upstream, second: Upstream, gateway: StartGateway, code: str | int | None
) -> None:
    body = json.dumps({"error": {"message": "it broke", "code": code}}).encode()
    upstream.script(Reply(body), times=None)
    gw = await gateway(config_for(upstream, second))
    for fields in KINDS:
        direct = await gw.chat(model="m0", **fields)
        assert direct.status >= 500
        assert direct.json()["error"]["code"].startswith("upstream_")
        assert (await gw.chat(**fields)).header("x-turnout-upstream") == "u1"


async def test_c10_a_stream_by_any_label(upstream: Upstream, gateway: StartGateway) -> None:
    events = answer("Hel", "lo")
    gw = await gateway(upstream)
    for label in ("text/plain", "application/json", "text/html", "application/octet-stream", ""):
        upstream.script(Sse(events, headers={"content-type": label}))
        answered = await gw.chat(**STREAM)
        assert (answered.status, answered.body) == (200, b"".join(events))
        assert (answered.header("content-type") or "").startswith("text/event-stream")


@pytest.mark.parametrize("label", ["application/json", "text/event-stream"])
async def test_c10_a_whole_completion_becomes_one_chunk(upstream: Upstream, gateway: StartGateway, label: str) -> None:
    upstream.script(Reply(completion("Hello", (3, 1), extra={"x_new": 1}), 200, {"content-type": label}), times=None)
    gw = await gateway(upstream)
    answered = await gw.chat(stream=True)
    assert (answered.header("content-type") or "").startswith("text/event-stream")
    one, done = payloads(answered.body)
    assert (text_of(answered.body), done) == ("Hello", "[DONE]")
    assert (one["object"], one["x_new"], one["choices"][0]["finish_reason"]) == ("chat.completion.chunk", 1, "stop")
    assert "usage" not in one
    one, usage, done = payloads((await gw.chat(**STREAM)).body)
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 4)
    assert [(line["outcome"], line["prompt"], line["completion"]) for line in gw.calls()] == [("ok", 3, 1)] * 2


async def test_c10_a_whole_completion_with_tools(upstream: Upstream, gateway: StartGateway) -> None:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in "ab"]
    upstream.script(Reply(completion(None, None, finish="tool_calls", tool_calls=calls)))
    gw = await gateway(upstream)
    one, _ = payloads((await gw.chat(**STREAM)).body)
    deltas = one["choices"][0]["delta"]["tool_calls"]
    assert [(d["index"], d["id"]) for d in deltas] == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("fields", KINDS)
async def test_c10_an_error_whose_body_does_not_end_costs_no_fallback(
    upstream: Upstream, second: Upstream, gateway: StartGateway, fields: dict[str, Any]
) -> None:
    upstream.script(Reply([b"{", Hang()], 503, {"content-length": "100"}))
    gw = await gateway(config_for(upstream, second, gateway={"timeouts": {"first_event": 60, "total": 60}}))
    answered = await gw.chat(**fields)
    assert (answered.status, answered.header("x-turnout-model")) == (200, "m1")
    assert "loading or has no room" in gw.calls()[0]["failed"][0]


async def test_c10_an_error_that_is_whole_counts_though_its_body_does_not_end(
    upstream: Upstream, gateway: StartGateway
) -> None:
    told = json.dumps({"error": {"message": "x", "code": "context_length_exceeded"}}).encode()
    upstream.script(Reply([told, Hang()], 400, framing="chunked"))
    gw = await gateway(upstream)
    answered = await gw.chat()
    assert (answered.status, answered.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_c10_an_error_event_for_a_plain_call(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse([b'data: {"error":{"message":"boom","code":500}}\n\n']))
    gw = await gateway(config_for(upstream, second))
    answered = await gw.chat()
    assert (answered.status, answered.header("x-turnout-model")) == (200, "m1")


DIED: dict[str, bytes] = {
    "named event": b'event: error\ndata: {"message":"engine died sk-upstream-00000","code":503}\n\n',
    "object": b'data: {"object":"error","message":"engine died sk-upstream-00000","code":500}\n\n',
    "detail": event({"detail": "engine died sk-upstream-00000"}),
    "in the choice": event({"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 502}}]}),
}


@pytest.mark.parametrize("died", DIED.values(), ids=DIED)
async def test_c10_an_error_of_any_shape_in_a_stream(
    upstream: Upstream, second: Upstream, gateway: StartGateway, died: bytes
) -> None:
    """Before the commit the next model takes over; after it the caller gets one error event that SDKs raise."""
    gw = await gateway(config_for(upstream, second, upstreams={"u0": {"api_key": "sk-upstream-00000"}}))
    upstream.script(Sse([chunk("", "assistant"), died, b"data: [DONE]\n\n"]))
    assert (await gw.chat(**STREAM)).header("x-turnout-model") == "m1"
    upstream.script(Sse([chunk("Hel"), died, b"data: [DONE]\n\n"]))
    answered = await gw.chat(**STREAM)
    told = payloads(answered.body)[-1]
    assert isinstance(told, dict)
    assert told["error"]
    assert b"sk-upstream" not in answered.body
    assert gw.calls()[-1]["outcome"] == "upstream_bad_response"


ODD: dict[str, bytes] = {
    "NaN": b'data: {"choices":[{"index":0,"delta":{"content":"lo"},"logprob":NaN}]}\n\n',
    "infinity": b'data: {"choices":[{"index":0,"delta":{"content":"lo"},"logprob":-Infinity}]}\n\n',
    "half a character": rb'data: {"choices":[{"index":0,"delta":{"content":"\ud83e"}}]}' + b"\n\n",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_what_is_nearly_json_is_an_answer(upstream: Upstream, gateway: StartGateway, odd: bytes) -> None:
    """Python's servers write such logprobs, and a token may end in the middle of an emoji."""
    gw = await gateway(upstream)
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","logprob":NaN}]}\n\n'
    used = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
    upstream.script(Sse([chunk("", "assistant"), odd, end, used]))
    answered = await gw.chat(**STREAM)
    assert answered.status == 200
    assert odd in answered.body
    assert answered.body.endswith(b"data: [DONE]\n\n")
    call = gw.calls()[-1]
    assert (call["outcome"], call["prompt"], call["completion"]) == ("ok", 3, 2)
    whole = (
        b'{"choices":[{"message":{"content":"%b"},"logprob":NaN}],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
    )
    upstream.script(Reply(whole % rb"\ud83e"))
    plain = await gw.chat()
    assert plain.body == whole % rb"\ud83e"
    call = gw.calls()[-1]
    assert (call["outcome"], call["prompt"], call["completion"]) == ("ok", 3, 2)
