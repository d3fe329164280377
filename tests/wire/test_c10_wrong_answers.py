"""C10: answers to `stream: true` that are errors, pages, whole completions or wrongly labelled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Reply, Sse, Upstream, answer, completion, error
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
