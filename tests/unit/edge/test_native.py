"""The native adapter on real sockets: framing, keep-alive, pipelining, and what it leaves to ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from uvicorn.server import ServerState

from gateway.call import ENDPOINTS
from gateway.clock import Tasks
from gateway.edge.exchange import Exchange
from gateway.edge.native import Inference
from gateway.edge.pulse import Pulse
from gateway.edge.server import Connection, settings
from tests.fakes import connect, post, request

TARGET = "/v1/chat/completions"
Run = Callable[[Exchange], Awaitable[None]]


@asynccontextmanager
async def serving(run: Run) -> AsyncIterator[str]:
    """A server that gives inference calls to `run`; whatever goes the other way is answered with `asgi`."""

    async def application(scope: object, receive: object, send: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"asgi"})

    inference = Inference(run, {TARGET.encode(): ENDPOINTS["chat"]}, Pulse(), Tasks())
    config = settings(application, inference)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(config, state, {}, inference=inference), "127.0.0.1", 0
    )
    try:
        async with asyncio.timeout(15):
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        await server.wait_closed()


async def echo(exchange: Exchange) -> None:
    body = await exchange.read(0)
    await exchange._head(200, [(b"content-length", b"%d" % len(body))])
    await exchange.end(body)


async def in_pieces(exchange: Exchange) -> None:
    body = await exchange.read(0)
    await exchange._head(200, [])
    for byte in body:
        await exchange.write(bytes([byte]))
    await exchange.end()


async def passed_on(exchange: Exchange) -> None:
    body = await exchange.read(0)
    await exchange._head(200, [])
    assert not exchange.pass_on(b"before the head"), "it goes out with the first write"
    await exchange.write(body[:1])
    assert all(exchange.pass_on(bytes([byte])) for byte in body[1:])
    await exchange.end()


@pytest.mark.parametrize("run", [echo, in_pieces, passed_on])
async def test_requests_on_one_connection(run: Run) -> None:
    async with serving(run) as url, connect(url) as client:
        for number in range(3):
            await client.send(post(TARGET, b"%d-abc" % number))
            answer = await client.response()
            assert (answer.status, await answer.read()) == (200, b"%d-abc" % number)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(echo) as url, connect(url) as client:
        await client.send(post(TARGET, b"one") + request("GET", "/") + post(TARGET, b"two"))
        bodies = [await (await client.response()).read() for _ in range(3)]
        assert bodies == [b"one", b"asgi", b"two"]


async def test_a_long_body_in_many_reads() -> None:
    body = bytes(range(256)) * 8192
    async with serving(echo) as url, connect(url) as client:
        await client.send(post(TARGET, body))
        assert await (await client.response()).read() == body


async def test_a_chunked_body() -> None:
    head = f"POST {TARGET} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    async with serving(echo) as url, connect(url) as client:
        for part in (head, b"3\r\nabc\r\n", b"2\r\nde\r\n", b"0\r\n\r\n"):
            await client.send(part)
        assert await (await client.response()).read() == b"abcde"


async def test_close_is_honoured_and_said() -> None:
    async with serving(echo) as url, connect(url) as client:
        await client.send(post(TARGET, b"x", headers={"connection": "close"}))
        answer = await client.response()
        assert answer.header("connection") == "close"
        assert await answer.read() == b"x"


@pytest.mark.parametrize(
    "head",
    [
        f"POST {TARGET} HTTP/1.0\r\nhost: h\r\n",
        f"POST {TARGET}?x=1 HTTP/1.1\r\nhost: h\r\n",
        f"POST http://h{TARGET} HTTP/1.1\r\nhost: h\r\n",
        f"POST {TARGET} HTTP/1.1\r\nhost: h\r\norigin: https://a.example\r\n",
        f"PUT {TARGET} HTTP/1.1\r\nhost: h\r\n",
    ],
    ids=["HTTP/1.0", "query", "absolute", "origin", "method"],
)
async def test_whatever_is_unusual_goes_the_other_way(head: str) -> None:
    async with serving(echo) as url, connect(url) as client:
        await client.send(head.encode() + b"content-length: 0\r\n\r\n")
        assert await (await client.response()).read() == b"asgi"


async def test_a_caller_who_is_slow_is_passed_nothing() -> None:
    refused = asyncio.Event()

    async def flood(exchange: Exchange) -> None:
        await exchange._head(200, [])
        await exchange.write(b"x")
        while exchange.pass_on(b"y" * 65536):
            pass
        refused.set()
        await exchange.end()

    async with serving(flood) as url, connect(url) as client:
        await client.send(post(TARGET, b""))
        await refused.wait()
        body = await (await client.response()).read()
    assert body == b"x" + b"y" * (len(body) - 1)


async def test_an_answer_that_was_never_finished_ends_the_connection() -> None:
    async def half(exchange: Exchange) -> None:
        await exchange._head(200, [])
        await exchange.write(b"half")

    async with serving(half) as url, connect(url) as client:
        await client.send(post(TARGET, b"x"))
        with pytest.raises(Exception, match="end"):
            await (await client.response()).read()


async def test_a_caller_that_leaves_within_the_body_is_noticed() -> None:
    left: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def reading(exchange: Exchange) -> None:
        try:
            await exchange.read(0)
        except asyncio.CancelledError:
            left.set_result(exchange.left)

    async with serving(reading) as url:
        async with connect(url) as client:
            await client.send(post(TARGET, b"x" * 100)[:-50])
            await asyncio.sleep(0.05)
        assert await left
