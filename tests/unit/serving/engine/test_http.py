from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from serving.engine.http import Answer, ask
from tests.unit.serving.engine.fakes import free_port


@asynccontextmanager
async def peer(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers every connection with these bytes; its port, and what it was sent."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.partition(b"content-length: ")[2].split()[0])
        seen.append(head + await reader.readexactly(length))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], seen


async def test_get() -> None:
    async with peer(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"a": 1}') as (port, seen):
        answer = await ask(port, "/v1/models")
    assert (answer.status, answer.json()) == (200, {"a": 1})
    assert seen[0].startswith(b"GET /v1/models HTTP/1.0\r\nhost: 127.0.0.1\r\n")
    assert b"authorization" not in seen[0]


async def test_post_with_a_key() -> None:
    async with peer(b"HTTP/1.1 404 Not Found\r\n\r\n<html>") as (port, seen):
        answer = await ask(port, "/v1/completions", {"n": 1}, "sk-1")
    assert (answer.status, answer.json()) == (404, None)
    assert seen[0].startswith(b"POST /v1/completions HTTP/1.0\r\n")
    assert b"\r\nauthorization: Bearer sk-1\r\n" in seen[0]
    assert seen[0].endswith(b'\r\n\r\n{"n": 1}')


@pytest.mark.parametrize("data", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 soon\r\n\r\n", b"\r\n\r\n"])
async def test_what_is_not_http_has_status_0(data: bytes) -> None:
    async with peer(data) as (port, _):
        assert await ask(port, "/health") == Answer(0)


async def test_nobody_there_has_status_0() -> None:
    assert await ask(free_port(), "/health") == Answer(0)
