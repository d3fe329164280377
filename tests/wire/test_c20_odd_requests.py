"""Case C20 below the body: whatever bytes a caller sends, the answer comes soon, and it is never a 500."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.conftest import StartGateway
from tests.fakes import Cut, Response, Upstream, post, request
from tests.harness import LocalGateway, config_for
from tests.wire.checks import BEARER, CHAT, KEY, KEYS, openai_error, still_well

ASK = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
LENGTH = len(json.dumps(ASK, separators=(",", ":")))
LIMIT = 20.0
"""Seconds: what takes longer hangs."""

BAD_HTTP = {
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "an unknown method": b"FOO / HTTP/1.1\r\nhost: t\r\n\r\n",
    "HTTP/3.7": b"GET / HTTP/3.7\r\nhost: t\r\n\r\n",
    "a NUL in a header": post(CHAT, ASK, {"x-odd": "a\0b"}),
    "a bare CR in a header": post(CHAT, ASK, {"traceparent": "a\rx-evil: 1"}),
    "a space before the colon": post(CHAT, ASK, {"x-odd ": "1"}),
    "a header without a name": post(CHAT, ASK, {"": "1"}),
    "two lengths": post(CHAT, ASK, [("content-length", str(LENGTH)), ("content-length", "3")]),
    "a negative length": post(CHAT, b"", {"content-length": "-1"}),
    "a length with a sign": post(CHAT, ASK, {"content-length": f"+{LENGTH}"}),
    "a length of 30 digits": post(CHAT, ASK, {"content-length": "9" * 30}),
    "a length and chunks": post(CHAT, b"0\r\n\r\n", [("content-length", "5"), ("transfer-encoding", "chunked")]),
    "a chunk size that is no number": post(CHAT, b"zz\r\n{}\r\n0\r\n\r\n", {"transfer-encoding": "chunked"}),
    "an endless chunk size": post(CHAT, b"f" * 40 + b"\r\n{}", {"transfer-encoding": "chunked"}),
    "a target outside ASCII": b"GET /\xff\xfe HTTP/1.1\r\nhost: t\r\n\r\n",
    "CONNECT": b"CONNECT h:443 HTTP/1.1\r\nhost: h:443\r\n\r\n",
}


@pytest.mark.parametrize("sent", BAD_HTTP.values(), ids=BAD_HTTP.keys())
async def test_what_is_not_http(upstream: Upstream, gateway: StartGateway, sent: bytes) -> None:
    gw = await gateway(upstream)
    answer = await _answer(gw, sent)
    assert answer is None or answer.status == 400, answer
    assert upstream.count() == 0
    await still_well(gw, upstream)


@pytest.mark.parametrize("sent", [BAD_HTTP["an unknown method"], BAD_HTTP["a chunk size that is no number"]])
async def test_bad_http_is_told_in_the_same_shape(upstream: Upstream, gateway: StartGateway, sent: bytes) -> None:
    answer = await _answer(await gateway(upstream), sent)
    assert answer is not None
    openai_error(answer, 400, "invalid_request")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (BAD_HTTP["an unknown method"], 400),
        (BAD_HTTP["HTTP/3.7"], 400),
        (BAD_HTTP["an endless chunk size"], 400),
        (b"GET / HTTP/1.1\r\nhost: t\r\nx-long: " + b"v" * 2_000_000 + b"\r\n\r\n", 431),
    ],
    ids=["method", "version", "chunk", "large head"],
)
async def test_what_cannot_be_read_is_refused_like_all_else(
    upstream: Upstream, gateway: StartGateway, sent: bytes, status: int
) -> None:
    """An id to ask the operator about, a length, and no reset that eats the answer before it is read."""
    gw = await gateway(upstream)
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(sent)
        answer = await client.response()
        await answer.read()
        openai_error(answer, status, "invalid_request")
        assert answer.header("x-request-id")
        assert answer.header("content-length") == str(len(answer.body))
        assert answer.header("connection") == "close"
        await client.until_closed()
        assert not client.was_reset


async def test_an_unreadable_request_keeps_its_id(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    sent = post(CHAT, b"zz\r\n{}\r\n0\r\n\r\n", {"transfer-encoding": "chunked", "x-request-id": "mine-1"})
    answer = await _answer(gw, sent)
    assert answer is not None
    assert (answer.status, answer.header("x-request-id")) == (400, "mine-1")


ODD_HEADERS = {
    "bytes above ASCII": [("traceparent", "\xff\xfe\x80"), ("x-odd", "\xe9"), ("user-agent", "\xff")],
    "control characters": [("traceparent", "\x01\x1b"), ("openai-beta", "\x7f")],
    "empty ones": [("traceparent", ""), ("openai-beta", ""), ("authorization", ""), ("x-api-key", "")],
    "a folded one": [("traceparent", "a\r\n b"), ("x-request-id", "a\r\n\tb")],
    "a long one": [("traceparent", "a" * 60_000), ("openai-beta", "b" * 60_000)],
    "300 of them": [(f"x-{number}", "v") for number in range(300)],
    "each one twice": [(name, value) for name in ("x-request-id", "traceparent", "accept") for value in ("a", "b")],
    "an upgrade to HTTP/2": [("connection", "upgrade, http2-settings"), ("upgrade", "h2c"), ("http2-settings", "")],
    "a content-encoding of nothing": [("content-encoding", " identity ")],
    "a length with 5,000 zeros": [("content-length", "0" * 5000 + str(LENGTH))],
}


@pytest.mark.parametrize("headers", ODD_HEADERS.values(), ids=ODD_HEADERS.keys())
async def test_odd_headers_do_no_harm(
    upstream: Upstream, gateway: StartGateway, headers: list[tuple[str, str]]
) -> None:
    gw = await gateway(upstream)
    answer = await _answer(gw, post(CHAT, ASK, headers))
    assert answer is not None
    assert answer.status in (200, 400, 413), (answer.status, answer.body)
    if answer.status == 200:
        sent = (await upstream.call()).headers
        assert not [name for name, _ in sent if name.startswith(("x-odd", "x-1", "upgrade", "http2"))]
        assert all(value.isprintable() and value.isascii() for _, value in sent)
    upstream.requests.clear()
    await still_well(gw, upstream)


@pytest.mark.parametrize(
    "sent",
    [
        request("GET", "/v1/realtime?model=m&key=sk-secret", {"connection": "Upgrade", "upgrade": "websocket"}),
        post(CHAT, ASK, {"connection": "keep-alive, upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}),
        request("GET", "/health/live", {"connection": "upgrade", "upgrade": "TLS/1.2"}),
    ],
    ids=["websocket", "a call", "TLS"],
)
async def test_no_other_protocol_is_spoken(
    upstream: Upstream, gateway: StartGateway, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    gw = await gateway(upstream)
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(request("GET", "/health/live") + sent)
        assert (await (await client.response()).read()) == b'{"status":"live"}'
        answer = await client.response()
        await answer.read()
        assert "WebSocket" in openai_error(answer, 404, "unknown_path")["message"]
        await client.until_closed()
    (line,) = gw.log(event="request")
    assert (line["status"], line["id"]) == (404, answer.header("x-request-id"))
    assert "sk-secret" not in gw.output
    assert not caplog.records  # nothing from the web server
    assert upstream.count() == 0


async def test_a_head_without_end_is_cut_off(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(b"GET /health/live HTTP/1.1\r\nhost: t\r\n")
        for number in range(400):
            await client.send(b"x-%d: %b\r\n" % (number, b"v" * 10_000))
            await asyncio.sleep(0)  # the kernel alone may hold all of it: let the gateway read
            if client.received or client.was_reset:
                break
        else:
            raise AssertionError("4 MB of headers were taken")


@pytest.mark.parametrize(
    "target", ["/v1/chat%2Fcompletions", "/v1/%63hat/completions", f"http://elsewhere{CHAT}", f"{CHAT}?a=%00&b=%ff"]
)
async def test_other_spellings_of_the_path(upstream: Upstream, gateway: StartGateway, target: str) -> None:
    """Escapes and absolute targets mean the same path, so they need the same key."""
    gw = await gateway(config_for(upstream, keys=KEYS))
    openai_error(await gw.fetch(target, ASK), 401, "invalid_api_key")
    answer = await gw.fetch(target, ASK, headers=BEARER)
    assert (answer.status, upstream.count()) == (200, 1)


@pytest.mark.parametrize(
    "authorization",
    [
        KEY,
        f"Basic {KEY}",
        f"Bearer{KEY}",
        f"Bearer\t{KEY}",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY.upper()}",
        f"Bearer {KEY} {KEY}",
        "Bearer ",
        "Bearer",
        "",
        "Bearer \xff\xfe",
        "Bearer schl\xc3\xbcssel",
        "Bearer " + "k" * 60_000,
        "Bearer null",
        "Bearer ci",
    ],
)
async def test_a_wrong_key(upstream: Upstream, gateway: StartGateway, authorization: str) -> None:
    gw = await gateway(config_for(upstream, keys=KEYS))
    for name in ("authorization", "x-api-key"):
        if name == "x-api-key" and authorization == KEY:
            continue
        for target, body in ((CHAT, ASK), ("/v1/models", None), ("/nothing", None)):
            answer = await gw.fetch(target, body, headers={name: authorization})
            openai_error(answer, 401, "invalid_api_key")
            assert KEY not in answer.body.decode()
    assert upstream.count() == 0


@pytest.mark.parametrize("values", [("Bearer wrong", f"Bearer {KEY}"), (f"Bearer {KEY}", "Bearer wrong")])
async def test_two_credentials_are_none(upstream: Upstream, gateway: StartGateway, values: tuple[str, str]) -> None:
    """Another program in front might have looked at the other one."""
    gw = await gateway(config_for(upstream, keys=KEYS))
    answer = await gw.fetch(CHAT, ASK, headers=[("authorization", value) for value in values])
    openai_error(answer, 401, "invalid_api_key")


@pytest.mark.parametrize(
    "headers", [{"authorization": f"bearer   {KEY} "}, {"x-api-key": KEY}, {"x-api-key": f" {KEY} "}]
)
async def test_a_right_key(upstream: Upstream, gateway: StartGateway, headers: dict[str, str]) -> None:
    gw = await gateway(config_for(upstream, keys=KEYS))
    assert (await gw.fetch(CHAT, ASK, headers=headers)).status == 200


async def test_old_and_pipelined_requests(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(request("GET", "/health/live") + post(CHAT, ASK) + post(CHAT, b"{") + post(CHAT, ASK))
        statuses = []
        for _ in range(4):
            answer = await client.response()
            await answer.read()
            statuses.append(answer.status)
        assert statuses == [200, 200, 400, 200]
    old = post(CHAT, ASK).replace(b"HTTP/1.1", b"HTTP/1.0")
    answered = await _answer(gw, old)
    assert answered is not None
    assert answered.status == 200


async def test_a_caller_that_leaves_within_its_body(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    async with gw.connect() as client:
        await client.send(post(CHAT, b"{", {"content-length": "1000"}), separate=True)
    line = await gw.logged(event="call")
    assert (line["outcome"], line["status"]) == ("client_closed", 499)
    assert upstream.count() == 0


async def _answer(gw: LocalGateway, sent: bytes) -> Response | None:
    """The answer with its body; None where the connection was closed without one."""
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(sent)
        try:
            answer = await client.response()
            await answer.read()
        except Cut:
            return None
        return answer
