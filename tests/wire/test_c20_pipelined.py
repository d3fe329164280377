"""Case C20, several requests on one connection: what cannot be read is refused in its turn, never in another's."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import StartGateway
from tests.fakes import Client, Response, Sse, Upstream, WaitFor, answer, chunk, post, request
from tests.wire.calls import LIMIT, ask, text_of
from tests.wire.checks import CHAT, openai_error

ASK = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
GARBAGE = b"\x16\x03\x01 this is not HTTP\r\n\r\n"
UNREADABLE = {
    "garbage": (GARBAGE, 400),
    "a bad head": (b"GET / HTTP/9.9\r\nhost: t\r\n\r\n", 400),
    "a bad body": (post(CHAT, b"zz\r\n{}\r\n0\r\n\r\n", {"transfer-encoding": "chunked"}), 400),
    "a large head": (b"GET / HTTP/1.1\r\nhost: t\r\nx-long: " + b"v" * 200_000 + b"\r\n\r\n", 431),
}
unreadable = pytest.mark.parametrize(("sent", "status"), UNREADABLE.values(), ids=UNREADABLE.keys())


async def _next(client: Client) -> Response:
    got = await client.response()
    await got.read()
    return got


async def _refused_and_closed(client: Client, status: int) -> None:
    openai_error(await _next(client), status, "invalid_request")
    await client.until_closed()


@unreadable
async def test_the_first_request_keeps_its_answer(
    upstream: Upstream, gateway: StartGateway, sent: bytes, status: int
) -> None:
    gw, held = await gateway(upstream), asyncio.Event()
    upstream.script(WaitFor(held), Sse(answer("first")))
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(ask() + sent[:100])
        await upstream.call(0)
        await client.send(sent[100:] + GARBAGE)
        assert not client.received
        held.set()
        assert text_of((await _next(client)).body) == "first"
        await _refused_and_closed(client, status)
    assert [line["outcome"] for line in gw.calls()] == ["ok"]
    assert upstream.count() == 1


@unreadable
async def test_a_stream_under_way_is_not_touched(
    upstream: Upstream, gateway: StartGateway, sent: bytes, status: int
) -> None:
    gw, held = await gateway(upstream), asyncio.Event()
    upstream.script(Sse([chunk("first "), WaitFor(held), *answer("and last")]))
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(ask())
        streamed = await client.response()
        pieces = streamed.pieces()
        begun = (await anext(pieces)).data
        await client.send(sent, separate=True)
        held.set()
        assert text_of(begun + b"".join([piece.data async for piece in pieces])) == "first and last"
        await _refused_and_closed(client, status)
    assert [line["outcome"] for line in gw.calls()] == ["ok"]


@unreadable
async def test_every_request_before_it_is_answered(
    upstream: Upstream, gateway: StartGateway, sent: bytes, status: int
) -> None:
    gw = await gateway(upstream)
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(post(CHAT, ASK) + request("GET", "/health/live") + post(CHAT, b"{") + sent)
        assert [(await _next(client)).status for _ in range(3)] == [200, 200, 400]
        await _refused_and_closed(client, status)
    assert upstream.count() == 1
