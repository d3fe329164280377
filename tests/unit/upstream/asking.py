"""A pool, and calls on it, for tests over real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway import clock
from gateway.call import Incoming
from gateway.clock import Deadlines
from gateway.config.base_url import resolve
from gateway.errors import UpstreamFailure
from gateway.upstream.pool import Pool, PoolLimits

SOON = 30.0
"""Seconds; ends only tests that have failed."""


@asynccontextmanager
async def pool_to(url: str, tls: ssl.SSLContext | None = None, **limits: Any) -> AsyncIterator[Pool]:
    """A pool; nothing may be under way at its end."""
    pool = Pool(resolve(url), Deadlines(0.01), PoolLimits(**limits), tls)
    try:
        yield pool
        async with asyncio.timeout(SOON):
            while pool.busy:  # noqa: ASYNC110 - connections end when the event loop says so
                await asyncio.sleep(0.005)
    finally:
        pool.close()


async def send(pool: Pool, body: bytes = b"{}", *, within: float = SOON, connect: float = 5.0) -> Incoming:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: upstream\r\ncontent-length: %d\r\n\r\n" % len(body)
    return await pool.send(head, body, connect, clock.now() + within)


async def ask(pool: Pool, body: bytes = b"{}", *, within: float = SOON) -> bytes:
    """The whole answer's body."""
    incoming = await send(pool, body, within=within)
    out = b""
    try:
        while piece := await incoming.read(clock.now() + within):
            out += piece
    finally:
        incoming.close()
    return out


async def failure(work: Awaitable[object]) -> tuple[str, str]:
    """Cause and detail."""
    with pytest.raises(UpstreamFailure) as caught:
        await work
    return caught.value.cause, caught.value.detail


async def turns(count: int = 3) -> None:
    """Let everything that can run do so."""
    for _ in range(count):
        await asyncio.sleep(0)
