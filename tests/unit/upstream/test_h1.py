"""One connection on a transport that takes notes: what it reads, when it pauses, and that it is given back once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest

from gateway import clock
from gateway.clock import Deadlines
from gateway.errors import UpstreamFailure
from gateway.upstream.h1 import HIGH_WATER, MAX_HEAD, Answering, Connection

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
HALF = OK[:-1]
SOON = 30.0


class Transport:
    """Takes notes."""

    def __init__(self) -> None:
        self.written = b""
        self.unsent = 0
        self.paused = False
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        self.written += b"".join(pieces)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


class Rig:
    """A connection that has sent a request."""

    def __init__(self) -> None:
        self.released: list[bool] = []
        self.connection = Connection(Deadlines(0.01), lambda _, free: self.released.append(free))
        self.transport = Transport()
        self.connection.connection_made(cast(asyncio.Transport, self.transport))
        self.connection.send(b"POST / HTTP/1.1\r\n\r\n", b"{}")

    def feed(self, *data: bytes) -> None:
        for piece in data:
            self.connection.data_received(piece)

    async def answer(self) -> Answering:
        """The answer whose head has been fed."""
        await self.connection.head(clock.now())
        return Answering(self.connection)

    async def read(self) -> bytes:
        return await self.connection.read(clock.now())


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_a_request_and_its_answer(rig: Rig) -> None:
    assert rig.transport.written == b"POST / HTTP/1.1\r\n\r\n{}"
    rig.feed(OK)
    answer = await rig.answer()
    assert (answer.status, answer.headers) == (200, {b"content-length": b"2"})
    assert [await answer.read(clock.now()) for _ in range(3)] == [b"ok", b"", b""]
    assert rig.released == [True]


async def test_a_large_request_is_sent_whole(rig: Rig) -> None:
    rig.feed(OK)
    await rig.read()
    await rig.read()
    rig.transport.written = b""
    rig.connection.send(b"HEAD", b"x" * 100_000)
    assert rig.transport.written == b"HEAD" + b"x" * 100_000


async def test_reads_wait_for_bytes(rig: Rig) -> None:
    reading = asyncio.create_task(rig.connection.head(clock.now() + SOON))
    await asyncio.sleep(0)
    assert not reading.done()
    rig.feed(HALF)
    await reading
    assert await rig.read() == b"o"


Ending = Callable[[Connection], Any]


def lost(connection: Connection) -> None:
    connection.connection_lost(None)


def reset(connection: Connection) -> None:
    connection.connection_lost(ConnectionResetError())


def close(connection: Connection) -> None:
    connection.close()


def almost(connection: Connection) -> None:
    connection.close(almost_over=True)


def rest(connection: Connection) -> None:
    connection.data_received(b"k")


def surplus(connection: Connection) -> None:
    connection.data_received(b"k" + OK)


def retire(connection: Connection) -> None:
    connection.retire()


@pytest.mark.parametrize(
    ("endings", "kept"),
    [
        ((rest, close), True),
        ((rest, close, close), True),
        ((rest, almost), True),
        ((almost, rest), True),
        ((almost, almost, rest, close), True),
        ((close,), False),
        ((close, lost), False),
        ((close, close, reset), False),
        ((lost, close), False),
        ((reset, almost, close), False),
        ((almost, lost), False),
        ((almost, reset, lost), False),
        ((almost, retire, lost), False),
        ((almost, surplus, lost), False),
        ((surplus, close, lost), False),
        ((rest, lost, close), False),
        ((retire, close), False),
    ],
    ids=lambda value: "-".join(f.__name__ for f in value) if isinstance(value, tuple) else "",
)
async def test_it_is_given_back_once(rig: Rig, endings: tuple[Ending, ...], kept: bool) -> None:
    """Half an answer has come; then these things happen, in this order."""
    rig.feed(HALF)
    for ending in endings:
        ending(rig.connection)
    assert rig.released == [kept]
    assert rig.transport.aborted is not kept


async def test_a_kept_connection_that_goes_says_so_once(rig: Rig) -> None:
    rig.feed(OK)
    rig.connection.close()
    rig.connection.connection_lost(None)
    rig.connection.gone()
    assert rig.released == [True, False]
    assert not rig.connection.alive


async def test_an_idle_connection_that_speaks_is_closed(rig: Rig) -> None:
    rig.feed(OK)
    rig.connection.close()
    rig.feed(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert rig.transport.aborted


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_an_upstream_that_wants_to_close(rig: Rig, head: bytes) -> None:
    rig.feed(head)
    rig.connection.close()
    assert rig.released == [False]


async def test_an_answer_to_a_request_that_was_not_read_costs_the_connection(rig: Rig) -> None:
    rig.transport.unsent = 5
    rig.feed(OK)
    rig.connection.close()
    assert rig.released == [False]


@pytest.mark.parametrize("cuts", [(), (len(OK),), (len(OK) + 9,)], ids=["one read", "at the end", "within"])
async def test_a_second_answer_is_nobodys(rig: Rig, cuts: tuple[int, ...]) -> None:
    both = OK + b"HTTP/1.1 500 No\r\nx: y\r\ncontent-length: 3\r\n\r\nbad"
    edges = [0, *cuts, len(both)]
    rig.feed(*(both[start:end] for start, end in pairwise(edges)))
    answer = await rig.answer()
    assert (answer.status, b"x" in answer.headers) == (200, False)
    assert [await answer.read(clock.now()) for _ in range(2)] == [b"ok", b""]
    assert rig.released == [False]


async def test_a_slow_reader_stops_the_upstream(rig: Rig) -> None:
    rig.feed(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * HIGH_WATER)
    assert not rig.transport.paused
    rig.feed(b"x", b"y")
    assert rig.transport.paused
    assert len(await rig.read()) == HIGH_WATER + 2
    assert not rig.transport.paused


async def test_an_abandoned_connection_reads_again(rig: Rig) -> None:
    """Else it would not notice that its peer has gone."""
    rig.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n" + b"x" * (HIGH_WATER + 1))
    assert rig.transport.paused
    rig.connection.close(almost_over=True)
    assert not rig.transport.paused
    rig.feed(b"x" * (HIGH_WATER + 1))
    assert not rig.transport.paused
    rig.connection.retire()


async def fails(rig: Rig) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as caught:
        await rig.connection.head(clock.now())
    return caught.value


async def test_a_peer_that_leaves_before_its_answer(rig: Rig) -> None:
    rig.connection.connection_lost(None)
    assert ((await fails(rig)).cause, rig.connection.answered) == ("cut", False)


async def test_a_peer_that_leaves_in_its_head(rig: Rig) -> None:
    rig.feed(b"HTTP/1.1 2")
    rig.connection.connection_lost(None)
    assert ((await fails(rig)).cause, rig.connection.answered) == ("cut", True)


async def test_what_came_before_the_end_is_read_first(rig: Rig) -> None:
    rig.feed(HALF)
    rig.connection.connection_lost(ConnectionResetError())
    assert await rig.read() == b"o"
    with pytest.raises(UpstreamFailure) as caught:
        await rig.read()
    assert caught.value.cause == "cut"


@pytest.mark.parametrize(("error", "whole"), [(None, True), (ConnectionResetError(), False)], ids=["FIN", "RST"])
async def test_an_answer_that_ends_with_its_connection(rig: Rig, error: Exception | None, whole: bool) -> None:
    rig.feed(b"HTTP/1.1 200 OK\r\n\r\nok")
    rig.connection.connection_lost(error)
    assert await rig.read() == b"ok"
    if whole:
        assert await rig.read() == b""
    else:
        with pytest.raises(UpstreamFailure):
            await rig.read()
    rig.connection.close()
    assert rig.released == [False]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * MAX_HEAD,
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * (MAX_HEAD // 20),
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    ],
    ids=["a long head", "interim answers without end", "no HTTP", "a switch of protocols"],
)
async def test_heads_that_are_none(rig: Rig, data: bytes) -> None:
    rig.feed(*(data[at : at + 1000] for at in range(0, len(data), 1000) if not rig.transport.aborted))
    assert rig.transport.aborted
    assert (await fails(rig)).cause == "bad_response"


async def test_a_large_body_that_comes_with_its_head_is_no_large_head(rig: Rig) -> None:
    rig.feed(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (2 * MAX_HEAD))
    await rig.answer()
    assert not rig.transport.aborted


async def test_trailers_are_not_kept(rig: Rig) -> None:
    rig.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", b"t: u\r\n" * 1000, b"\r\n")
    answer = await rig.answer()
    assert answer.headers == {b"transfer-encoding": b"chunked"}
    assert [await answer.read(clock.now()) for _ in range(2)] == [b"ok", b""]
    assert rig.released == [True]


async def test_time_passes(rig: Rig) -> None:
    assert (await fails(rig)).cause == "timeout"
    rig.feed(OK)
    await rig.connection.head(clock.now())


async def test_a_cancelled_wait_leaves_the_connection_usable(rig: Rig) -> None:
    waiting = asyncio.create_task(rig.connection.head(clock.now() + SOON))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    rig.feed(OK)
    await rig.connection.head(clock.now())
    assert await rig.read() == b"ok"


async def test_a_compressed_answer_ends_where_its_compression_does(rig: Rig) -> None:
    """What follows in the framing is waited for, without the reader."""
    packed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcb\xcf\x06\x00G\xdd\xdcy\x02\x00\x00\x00"
    rig.feed(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n")
    rig.feed(b"%x\r\n%b\r\n" % (len(packed), packed))
    answer = await rig.answer()
    assert [await answer.read(clock.now()) for _ in range(2)] == [b"ok", b""]
    assert rig.released == []
    rig.feed(b"0\r\n\r\n")
    assert rig.released == [True]


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_pieces_are_offered_while_a_read_waits(rig: Rig) -> None:
    taken: list[bytes] = []
    rig.feed(CHUNKED, b"1\r\na\r\n")
    answer = await rig.answer()

    def take(data: bytes) -> bool:
        taken.append(data)
        return data != b"d"

    answer.offer(take)
    rig.feed(b"1\r\nb\r\n")
    assert (await rig.read(), taken) == (b"ab", [])
    reading = asyncio.create_task(answer.read(clock.now() + SOON))
    await asyncio.sleep(0)
    rig.feed(b"1\r\nc\r\n1\r\nC\r\n", b"1\r\nd\r\n", b"1\r\ne\r\n")
    assert (await reading, taken) == (b"de", [b"cC", b"d"])  # what follows a refused piece has to wait its turn
    reading = asyncio.create_task(answer.read(clock.now() + SOON))
    await asyncio.sleep(0)
    rig.feed(b"1\r\nf\r\n0\r\n\r\n")
    assert (await reading, taken) == (b"f", [b"cC", b"d"])  # an end is for the reader
    assert await answer.read(clock.now()) == b""
    assert rig.released == [True]


async def test_an_offer_ends_with_its_answer(rig: Rig) -> None:
    taken: list[bytes] = []
    rig.feed(CHUNKED)
    answer = await rig.answer()

    def take(data: bytes) -> bool:
        taken.append(data)
        return True

    answer.offer(take)
    rig.feed(b"0\r\n\r\n")
    assert await answer.read(clock.now()) == b""
    rig.connection.send(b"POST / HTTP/1.1\r\n\r\n", b"{}")
    rig.feed(CHUNKED)
    reading = asyncio.create_task((await rig.answer()).read(clock.now() + SOON))
    await asyncio.sleep(0)
    rig.feed(b"1\r\na\r\n")
    assert (await reading, taken) == (b"a", [])
