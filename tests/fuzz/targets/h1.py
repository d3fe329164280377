"""An upstream's bytes on one connection: an answer or an UpstreamFailure, and the pool is told once that it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway import clock
from gateway.clock import Deadlines
from gateway.errors import CAUSES, UpstreamFailure
from gateway.upstream.h1 import Answering, Connection
from tests.fuzz.splitting import pieces, tiny, whole
from tests.fuzz.transport import Transport, run

_ANSWERS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc",
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00",
    b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\n\r\nx",
    b"SSH-2.0-x\r\n",
    b"HTTP/1.1 999 \r\n\r\n",
    b"<html>",
)
SEEDS = tuple(form(answer) for answer in _ANSWERS for form in (whole, tiny))
WORDS = (
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"\r\n\r\n",
    b"content-length: 3\r\n",
    b"transfer-encoding: chunked\r\n",
    b"content-encoding: deflate\r\n",
    b"connection: upgrade\r\n",
    b"upgrade: x\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
)

_TURNS = 20
"""Turns of the loop after which everything that can happen has happened."""


@dataclass
class Outcome:
    """What the reader of an answer got."""

    status: int = 0
    body: bytes = b""
    cause: str = ""
    back: list[bool] = field(default_factory=list)
    """Each time the pool was told about the connection: it is free (True), it is gone (False)."""


def fuzz(data: bytes) -> None:
    """See `tests.fuzz.Target`."""
    packets = pieces(data)
    run(_compare(packets))


async def _compare(packets: Sequence[bytes]) -> None:
    got = await _outcome(packets)
    assert got.cause == "" or got.cause in CAUSES
    assert got.back[-1:] == [False] and got.back.count(False) == 1, got  # noqa: PT018 - one promise
    together = await _outcome([b"".join(packets)] if packets else [])
    assert (got.status, got.cause) == (together.status, together.cause)
    assert got.cause or got.body == together.body


async def _outcome(packets: Sequence[bytes]) -> Outcome:
    got = Outcome()
    connection = Connection(Deadlines(), lambda _, free: got.back.append(free))
    transport = Transport(connection)
    connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
    reader = asyncio.get_running_loop().create_task(_read(connection, got))
    for packet in packets:
        transport.receive(packet)
        await asyncio.sleep(0)
    transport.end()
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    assert reader.done(), "it waits on a connection that is gone"
    reader.result()
    return got


async def _read(connection: Connection, got: Outcome) -> None:
    deadline = clock.now() + 60
    try:
        await connection.head(deadline)
        answer = Answering(connection)
        got.status = answer.status
        try:
            while piece := await answer.read(deadline):
                got.body += piece
        finally:
            answer.close()
    except UpstreamFailure as failure:
        got.cause = failure.cause
        connection.close()
