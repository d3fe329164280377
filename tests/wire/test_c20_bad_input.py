"""Case C20: a caller's mistake is a 4xx that names it; no upstream call, no retry, no 500."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Reply, Sse, Upstream, answer, completion, post
from tests.harness import LocalGateway
from tests.wire.checks import CHAT, openai_error, still_well

OK = b'"model":"auto","messages":[]'
MALFORMED = {
    "empty": b"",
    "white space": b" \r\n\t ",
    "an open brace": b"{",
    "an array": b"[]",
    "null": b"null",
    "a string": b'"x"',
    "a number": b"17",
    "two documents": b"{" + OK + b"}{}",
    "a NUL after the end": b"{" + OK + b"}\x00",
    "a byte order mark": b"\xef\xbb\xbf{" + OK + b"}",
    "UTF-16": '{"model":"auto","messages":[]}'.encode("utf-16"),
    "Latin-1": '{"model":"auto","messages":[],"user":"é"}'.encode("latin-1"),
    "half a character": b"{" + OK + b',"user":"\xf0\x9f\xa6"}',
    "a surrogate in UTF-8": b"{" + OK + b',"user":"\xed\xa0\x80"}',
    "an overlong slash": b"{" + OK + b',"user":"\xc0\xaf"}',
    "half an escaped pair": b"{" + OK + rb',"user":"\ud83e"}',
    "a NUL byte": b"{" + OK + b',"user":"\x00"}',
    "a raw newline": b"{" + OK + b',"user":"a\nb"}',
    "an unknown escape": b"{" + OK + rb',"user":"\q"}',
    "NaN": b"{" + OK + b',"temperature":NaN}',
    "Infinity": b"{" + OK + b',"temperature":-Infinity}',
    "a leading zero": b"{" + OK + b',"n":01}',
    "single quotes": b"{'model':'auto','messages':[]}",
    "a comment": b"{" + OK + b"/* hi */}",
    "a trailing comma": b"{" + OK + b",}",
    "a form": b"model=auto&messages=hi",
    "100,000 arrays": b"{" + OK + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 objects": b"{" + OK + b',"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "arrays without end": b'{"x":' + b"[" * 1_000_000,
    "10,000 fields": b"{" + OK + b"".join(b',"%d":0' % n for n in range(10_000)) + b"}",
}
NAMED: dict[str, tuple[bytes, str]] = {
    "no model": (b'{"messages":[]}', "model"),
    "a numeric model": (b'{"model":5,"messages":[]}', "model"),
    "a null model": (b'{"model":null,"messages":[]}', "model"),
    "an empty model": (b'{"model":"","messages":[]}', "model"),
    "a list of models": (b'{"model":["auto"],"messages":[]}', "model"),
    "no messages": (b'{"model":"auto"}', "messages"),
    "null messages": (b'{"model":"auto","messages":null}', "messages"),
    "text for messages": (b'{"model":"auto","messages":"hi"}', "messages"),
    "an object for messages": (b'{"model":"auto","messages":{"role":"user"}}', "messages"),
    "stream 1": (b"{" + OK + b',"stream":1}', "stream"),
    "stream as text": (b"{" + OK + b',"stream":"true"}', "stream"),
    "stream as a list": (b"{" + OK + b',"stream":[]}', "stream"),
    "stream_options as a list": (b"{" + OK + b',"stream":true,"stream_options":[]}', "stream_options"),
    "include_usage as text": (
        b"{" + OK + b',"stream":true,"stream_options":{"include_usage":"yes"}}',
        "stream_options",
    ),
    "two models": (b'{"model":"auto","messages":[],"model":"m0"}', "model"),
    "the same model twice": (b'{"model":"auto","model":"auto","messages":[]}', "model"),
    "two models, one escaped": (rb'{"model":"auto","messages":[],"\u006dodel":"m0"}', "model"),
    "two numbers that begin alike": (b"{" + OK + b',"n":12,"n":1}', "n"),
    "two numbers among others": (b"{" + OK + b',"n":12,"seed":2,"n":1}', "n"),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_not_a_json_object(upstream: Upstream, gateway: StartGateway, body: bytes) -> None:
    gw = await gateway(upstream)
    openai_error(await gw.fetch(CHAT, body), 400, "invalid_request")
    await _nothing_happened(gw, upstream)


@pytest.mark.parametrize(("body", "field"), NAMED.values(), ids=NAMED.keys())
async def test_a_wrong_field_is_named(upstream: Upstream, gateway: StartGateway, body: bytes, field: str) -> None:
    gw = await gateway(upstream)
    refusal = openai_error(await gw.fetch(CHAT, body), 400, "invalid_request")
    assert refusal["param"] == field
    assert field in refusal["message"]
    await _nothing_happened(gw, upstream)


async def _nothing_happened(gw: LocalGateway, upstream: Upstream) -> None:
    """One request was counted, no attempt was made, and the next caller notices nothing."""
    assert upstream.count() == 0
    samples = await gw.metrics()
    assert samples.total("turnout_requests_total") == 1
    assert samples.total("turnout_requests_total", outcome="invalid_request") == 1
    assert samples.total("turnout_attempts_total") == 0
    (line,) = gw.calls()
    assert (line["outcome"], line["status"], line["attempts"]) == ("invalid_request", 400, 0)
    await still_well(gw, upstream)


@pytest.mark.parametrize("body", [b'{"model":"auto"}', b'{"model":"auto","input":null}'])
async def test_embeddings_need_their_input(upstream: Upstream, gateway: StartGateway, body: bytes) -> None:
    gw = await gateway(upstream)
    assert openai_error(await gw.fetch("/v1/embeddings", body), 400)["param"] == "input"
    assert upstream.count() == 0


async def test_a_long_name_is_not_repeated_in_full(upstream: Upstream, gateway: StartGateway) -> None:
    name = b"k" * 1_000_000
    gw = await gateway(upstream)
    for body in (b'{"%b":1,"%b":2}' % (name, name), b'{"model":"%b","messages":[]}' % name):
        refused = await gw.fetch(CHAT, body)
        assert refused.status in (400, 404)
        assert len(refused.body) < 2000


@pytest.mark.parametrize("value", [b"9" * 5000, b"-" + b"9" * 400, b"1e999", b"0.5", b'"2"', b"null"])
async def test_a_strange_n_is_the_upstreams_to_judge(upstream: Upstream, gateway: StartGateway, value: bytes) -> None:
    ask = b'{"model":"fake","stream":%b,"messages":[],"n":%b,"stream_options":{"include_usage":true}}'
    gw = await gateway(upstream)
    for stream, reply in ((b"false", Reply(completion())), (b"true", Sse(answer("hi")[:-1], framing="close"))):
        upstream.script(reply)
        answered = await gw.fetch(CHAT, ask % (stream, value))
        assert answered.status == 200
        assert b"internal_error" not in answered.body
    assert not gw.log(level="error")
    assert [call.body for call in upstream.calls] == [ask % (b"false", value), ask % (b"true", value)]


TYPES: dict[str, Any] = {
    "text/plain": 415,
    "application/x-www-form-urlencoded": 415,
    "multipart/form-data; boundary=x": 415,
    "application/jsonp": 415,
    "text/plain; application/json": 415,
    "": 415,
    "application/json": 200,
    "Application/JSON ; charset=UTF-8": 200,
    "application/vnd.api+json": 200,
}


@pytest.mark.parametrize(("kind", "status"), TYPES.items())
async def test_content_types(upstream: Upstream, gateway: StartGateway, kind: str, status: int) -> None:
    gw = await gateway(upstream)
    answered = await gw.chat(headers={"content-type": kind})
    assert (answered.status, upstream.count()) == (status, int(status == 200))
    if status == 415:
        openai_error(answered, 415, "unsupported_media_type")


async def test_no_content_type_is_fine(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    sent = post(CHAT, {"model": "auto", "messages": []}).replace(b"content-type: application/json\r\n", b"")
    assert b"content-type" not in sent
    async with gw.connect() as client:
        await client.send(sent)
        assert (await client.response()).status == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings", "/api/v1/chat/completions"])
async def test_another_method_on_an_inference_path(
    upstream: Upstream, gateway: StartGateway, method: str, path: str
) -> None:
    gw = await gateway(upstream)
    refused = await gw.fetch(path, method=method)
    assert (refused.status, refused.header("allow")) == (405, "POST")
    if method != "HEAD":
        assert "POST" in openai_error(refused, 405, "method_not_allowed")["message"]
    assert upstream.count() == 0


@pytest.mark.parametrize("path", ["/health/live", "/v1/models", "/v1/models/auto", "/metrics"])
async def test_another_method_on_a_page(upstream: Upstream, gateway: StartGateway, path: str) -> None:
    gw = await gateway(upstream)
    refused = await gw.fetch(path, {})
    openai_error(refused, 405, "method_not_allowed")
    assert refused.header("allow") == "GET"


UNKNOWN = ["/", "/nothing", "/v1", "/v1/", "/v1/chat", f"{CHAT}/", "/v2/chat/completions", "/V1/chat/completions"]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", [*UNKNOWN, "/health", "/health/live/", "/metrics/", "/docs", "/%00", "/%ff%fe"])
async def test_an_unknown_path(upstream: Upstream, gateway: StartGateway, method: str, path: str) -> None:
    gw = await gateway(upstream)
    openai_error(await gw.fetch(path, {} if method == "POST" else None, method=method), 404, "unknown_path")
    assert upstream.count() == 0
