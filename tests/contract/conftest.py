"""The clients of the upstream seam, each against a scripted upstream over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop

from gateway import clock
from gateway.call import Incoming
from gateway.clock import Deadlines
from gateway.config.base_url import resolve
from gateway.upstream.client import Client, ProxiedClient
from gateway.upstream.pool import Pool, PoolLimits
from tests.fakes import Authority, Upstream
from tests.fakes.proxy import Proxy

SOON = 30.0
"""Seconds; ends only tests that have failed."""
CLIENTS = ("own", "own+tls", "forward", "connect", "socks")
"""The own pool; httpx2 through a proxy that forwards HTTP, that tunnels TLS, that speaks SOCKS5."""


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Python's own event loop, and the one that `turnout serve` runs on."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@dataclass
class Line:
    """One client and the upstream at its other end."""

    kind: str
    upstream: Upstream
    client: Client
    proxy: Proxy

    async def send(self, body: bytes = b"{}", *, within: float = SOON, connect: float = 5.0) -> Incoming:
        """POST `body`; the answer when its head is here."""
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: upstream\r\ncontent-type: application/json\r\n"
        head += b"authorization: Bearer sk-\xe9\r\naccept-encoding: identity\r\ncontent-length: %d\r\n\r\n" % len(body)
        return await self.client.send(head, body, connect, clock.now() + within)

    async def ask(self, body: bytes = b"{}", *, within: float = SOON) -> tuple[int, bytes]:
        """POST `body`; status and body of the answer, read to its end."""
        incoming = await self.send(body, within=within)
        try:
            return incoming.status, await whole(incoming)
        finally:
            incoming.close()


async def whole(incoming: Incoming) -> bytes:
    """The rest of an answer."""
    pieces = []
    while piece := await incoming.read(clock.now() + SOON):
        pieces.append(piece)
    return b"".join(pieces)


class Lines:
    """Makes lines; the fixture closes them."""

    def __init__(self, kind: str, stack: AsyncExitStack) -> None:
        self.kind = kind
        self._stack = stack

    async def __call__(self, limits: PoolLimits = PoolLimits(), **options: Any) -> Line:
        """A line whose upstream is made with `options`."""
        authority = Authority() if self.kind in ("own+tls", "connect") else None
        tls = authority.client() if authority else None
        upstream = await self._stack.enter_async_context(
            Upstream(tls=authority.server() if authority else None, **options)
        )
        proxy = await self._stack.enter_async_context(Proxy())
        target = resolve(upstream.url)
        client: Client
        if self.kind.startswith("own"):
            client = pool = Pool(target, Deadlines(0.01), limits, tls)
            self._stack.callback(pool.close)
        else:
            address = proxy.socks if self.kind == "socks" else proxy.http
            client = proxied = ProxiedClient(target, address, limits, tls)
            self._stack.push_async_callback(proxied.aclose)
        return Line(self.kind, upstream, client, proxy)


@pytest.fixture(params=CLIENTS)
async def lines(request: pytest.FixtureRequest) -> AsyncIterator[Lines]:
    """Makes lines of each kind in turn."""
    async with AsyncExitStack() as stack:
        yield Lines(request.param, stack)


@pytest.fixture
async def line(lines: Lines) -> AsyncIterator[Line]:
    """A line of each kind in turn; at its end nothing may be under way."""
    made = await lines()
    yield made
    async with asyncio.timeout(SOON):
        while made.client.busy:  # noqa: ASYNC110 - the end of an answer that nobody reads has no event
            await asyncio.sleep(0.005)
