"""One connection to a scripted peer: answers in their order, late ones, none, nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hiredis import ReplyError

from gateway import clock
from gateway.config.redis_url import Address
from gateway.limits.link import Link, pack
from gateway.limits.store import StoreDown
from tests.fakes import Authority, refusing_port, silent_port

SOON = 30.0
"""Seconds; ends only tests that have failed."""
PING = pack("PING")
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(peer: Peer, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The peer's port. Its connections stay open until the end, unless it closes them."""
    open_ones: list[tuple[asyncio.Task[None] | None, asyncio.StreamWriter]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.append((asyncio.current_task(), writer))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await peer(reader, writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]
    for task, writer in open_ones:
        assert task is not None
        task.cancel()
        writer.transport.abort()
        await asyncio.wait([task])


@asynccontextmanager
async def linked(peer: Peer, **options: Any) -> AsyncIterator[tuple[Link, list[str]]]:
    """A link to a peer, and why it was said to be down."""
    down: list[str] = []
    async with listening(peer) as port:
        link = await Link.open(Address("127.0.0.1", port), down.append, **options)
        try:
            yield link, down
        finally:
            link.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers each command with its last word, a byte at a time."""
    while line := await reader.readline():
        words = int(line[1:])
        for _ in range(words):
            await reader.readline()
            word = await reader.readline()
        for byte in b"+" + word:
            writer.write(bytes([byte]))
            await writer.drain()
    writer.close()


class Gate:
    """A peer that answers PONG to every command, once it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.commands = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readexactly(len(PING)):
            self.commands += 1
            await self.open.wait()
            writer.write(b"+PONG\r\n")


def unheard(_: object) -> None:
    raise AssertionError("somebody waits for this")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def test_answers_find_their_questions() -> None:
    async with linked(echo) as (link, down):
        told: list[object] = []
        asks = []
        for number in range(100):
            link.tell(pack("ECHO", f"t{number}"), told.append)
            asks.append(link.ask(pack("ECHO", number), unheard))
        assert await asyncio.gather(*asks) == [str(number).encode() for number in range(100)]
        await until(lambda: len(told) == 100)
        assert told == [b"t%d" % number for number in range(100)]
        assert not down


async def test_an_error_is_an_answer() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"-ERR no such thing\r\n")

    async with linked(refuse) as (link, down):
        answer = await link.ask(PING, unheard)
        assert isinstance(answer, ReplyError)
        assert str(answer) == "ERR no such thing"
        assert not down


async def test_nobody_waits_long_and_a_late_answer_is_heard() -> None:
    gate, late = Gate(), list[object]()
    async with linked(gate) as (link, down):
        began = clock.now()
        asks = await asyncio.gather(*(link.ask(PING, late.append) for _ in range(3)), return_exceptions=True)
        assert clock.now() - began < 1
        assert all(isinstance(answer, StoreDown) for answer in asks)
        assert down == ["no answer in time"]
        assert not link.lost
        gate.open.set()
        await until(lambda: len(late) == 3)
        assert late == [b"PONG"] * 3
        assert await link.ask(PING, unheard) == b"PONG"
        assert link.silent == 0


async def test_an_answer_that_a_cancelled_caller_waited_for_is_heard() -> None:
    gate, late = Gate(), list[object]()
    async with linked(gate) as (link, down):
        asking = asyncio.ensure_future(link.ask(PING, late.append))
        await until(lambda: gate.commands == 1)
        asking.cancel()
        gate.open.set()
        await until(lambda: late == [b"PONG"])
        assert not down


async def test_an_answer_in_the_moment_of_the_cancelling_is_heard() -> None:
    async with linked(Gate()) as (link, _):
        late: list[object] = []
        asking = asyncio.ensure_future(link.ask(PING, late.append))
        await asyncio.sleep(0)
        link.data_received(b"+PONG\r\n")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert late == [b"PONG"]


async def test_the_end_of_the_connection_is_told_to_all() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2 * len(PING))
        writer.close()

    async with linked(hang_up) as (link, down):
        told: list[object] = []
        link.tell(PING, told.append)
        with pytest.raises(StoreDown, match="closed by Redis"):
            await link.ask(PING, told.append)
        assert [type(answer) for answer in told] == [StoreDown] * 2
        assert down == ["connection closed by Redis"]
        with pytest.raises(StoreDown):
            link.tell(PING, unheard)


@pytest.mark.parametrize("nonsense", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x01", b"+PONG\r\n+PONG\r\n"])
async def test_nonsense_ends_the_connection(nonsense: bytes) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(nonsense)

    async with linked(babble) as (link, down):
        link.tell(PING, lambda _: None)
        await until(lambda: link.lost)
        assert len(down) == 1


async def test_commands_under_way_are_bounded() -> None:
    async with linked(Gate(), most=5) as (link, _):
        for _ in range(5):
            link.tell(PING, lambda _: None)
        with pytest.raises(StoreDown, match="too many"):
            link.tell(PING, unheard)


async def test_connecting_ends_soon() -> None:
    began = clock.now()
    with refusing_port() as port, pytest.raises(StoreDown, match="no connection"):
        await Link.open(Address("127.0.0.1", port), lambda why: None)
    with silent_port() as port, pytest.raises(StoreDown, match="in time"):
        await Link.open(Address("127.0.0.1", port), lambda why: None)
    with pytest.raises(StoreDown, match="no connection"):
        await Link.open(Address(path="/nowhere/redis.sock"), lambda why: None)
    assert clock.now() - began < 2


async def test_tls() -> None:
    authority = Authority()
    async with listening(echo, authority.server()) as port:
        address = Address("127.0.0.1", port, password="secret", tls=authority.client())
        link = await Link.open(address, lambda why: None)
        assert await link.ask(pack("ECHO", "x"), unheard) == b"x"
        link.close()
        stranger = Address("127.0.0.1", address.port, tls=Authority().client())
        with pytest.raises(StoreDown, match="no connection"):
            await Link.open(stranger, lambda why: None)
