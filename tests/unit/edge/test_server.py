"""What the server's connection tells an application beyond ASGI, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from uvicorn.server import ServerState

from gateway.clock import Tasks
from gateway.edge.line import line_of
from gateway.edge.native import Inference
from gateway.edge.pulse import Pulse
from gateway.edge.server import HEAD_SECONDS, Connection, settings
from tests.fakes import Cut, connect, post, request

App = Callable[[Any, Any, Any], Awaitable[None]]


async def _nothing(_: object) -> None: ...


NO_INFERENCE = Inference(_nothing, {}, Pulse(), Tasks())
LIMIT = 15.0
"""Seconds after which a wait has failed."""
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]}


@asynccontextmanager
async def serving(app: App, connections: list[Connection] | None = None) -> AsyncIterator[str]:
    """The URL of a server that runs `app` on the gateway's connections."""
    config = settings(app, NO_INFERENCE)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()

    def accept() -> Connection:
        connection = Connection(config, state, {}, inference=NO_INFERENCE)
        if connections is not None:
            connections.append(connection)
        return connection

    server = await loop.create_server(accept, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(LIMIT):
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        for connection in list(state.connections):
            connection.transport.abort()
        await server.wait_closed()


async def test_a_caller_that_leaves_is_told_at_once() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        line_of(scope).on_lost(left.set)
        asked.set()
        await left.wait()

    async with serving(app) as url:
        async with connect(url) as client:
            await client.send(request("GET", "/"))
            await asked.wait()
            assert not left.is_set()
        await left.wait()


async def test_nobody_is_told_after_the_end() -> None:
    told: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        line_of(scope).on_lost(lambda: told.append("lost"))
        line_of(scope).on_lost(None)
        await send(START)
        await send({"type": "http.response.body", "body": b"hello"})

    async with serving(app) as url, connect(url) as client:
        await client.send(request("GET", "/"))
        assert await (await client.response()).read() == b"hello"
    assert told == []


async def test_whether_the_body_is_here() -> None:
    seen: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(line_of(scope).body_complete)
        while (await receive()).get("more_body"):
            pass
        seen.append(line_of(scope).body_complete)
        await send(START)
        await send({"type": "http.response.body", "body": b"hello"})

    async with serving(app) as url, connect(url) as client:
        await client.send(post("/", b"1234", {"content-length": "8"}), separate=True)
        await client.send(b"5678")
        await (await client.response()).read()
        await client.send(post("/", b"1234"))
        await (await client.response()).read()
    assert seen == [False, True, True, True]


async def test_a_dropped_line_is_seen_as_an_answer_that_is_not_whole() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"hel", "more_body": True})
        line_of(scope).drop()

    async with serving(app) as url, connect(url) as client:
        await client.send(request("GET", "/"))
        answer = await client.response()
        with pytest.raises(Cut):
            await answer.read()


async def test_the_server_does_not_name_itself_and_keeps_connections() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"hello"})

    async with serving(app) as url, connect(url) as client:
        for _ in range(2):
            await client.send(request("GET", "/", {"x-forwarded-for": "10.0.0.1"}))
            answer = await client.response()
            await answer.read()
            assert answer.header("server") is None
    assert settings(app, NO_INFERENCE).timeout_keep_alive > 60
    assert not settings(app, NO_INFERENCE).proxy_headers


async def test_an_offer_of_http_2_is_declined_and_the_body_kept() -> None:
    """As the JDK's client makes it on every first request."""
    bodies: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        bodies.append(message["body"])
        await send(START)
        await send({"type": "http.response.body", "body": b"12345"})

    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAEAAEAAAAIAAAAB"}
    async with serving(app) as url, connect(url) as client:
        await client.send(post("/", b'{"x":"h2c"}', headers=offer))
        assert (await client.response()).status == 200
    assert bodies == [b'{"x":"h2c"}']


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: t\r\nx-slow: "], ids=["nothing", "half a head"])
async def test_a_head_that_does_not_come_ends_the_connection(sent: bytes) -> None:
    """The connection's own check, called as if its time had come."""
    connections: list[Connection] = []

    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    async with serving(app, connections) as url, connect(url) as client:
        await client.send(sent or b"\r\n")
        async with asyncio.timeout(LIMIT):
            while not connections:  # noqa: ASYNC110 - nothing tells of an accepted connection
                await asyncio.sleep(0.01)
        (connection,) = connections
        assert connection._head_since is not None
        connection._head_since -= HEAD_SECONDS
        connection._check_head()
        answer = await client.response()
        error = json.loads(await answer.read())["error"]
        assert (answer.status, error["code"]) == (408, "request_timeout")
        assert answer.header("x-request-id")
        assert answer.header("connection") == "close"


async def test_a_connection_that_rests_for_too_long_is_closed() -> None:
    """Again by the connection's own check; it is not closed while a call is under way."""
    connections: list[Connection] = []
    asked, let = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await let.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async with serving(app, connections) as url, connect(url) as client, asyncio.timeout(LIMIT):
        let.set()
        for _ in range(2):
            await client.send(post("/", b"{}"))
            assert (await client.response()).status == 200
        (connection,) = connections
        assert connection._idle_since is not None
        connection._idle_since -= connection.timeout_keep_alive
        let.clear()
        asked.clear()
        await client.send(post("/", b"{}"))
        await asked.wait()
        connection._check_head()
        let.set()
        assert (await client.response()).status == 200
        connection._idle_since -= connection.timeout_keep_alive
        connection._check_head()
        await client.until_closed()
