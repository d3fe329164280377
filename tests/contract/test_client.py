"""What every client of the upstream seam does with an answer: one suite for all of them."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from gateway import clock
from gateway.call import Incoming
from gateway.errors import CAUSES, UpstreamFailure
from gateway.upstream.coding import PIECE
from gateway.upstream.pool import PoolLimits
from tests.contract.conftest import SOON, Line, Lines, whole
from tests.fakes import Close, Hang, Pause, Reply, Request, Reset, Send, StallRead, Step, WaitFor, sends
from tests.fakes.steps import Framing

pytestmark = pytest.mark.slow

BODY = b'{"choices":[]}'
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n" + BODY
BIG = 20_000_000
KERNEL = 10_000_000
"""Bytes that the kernel's buffers of all sockets on the way may take, generously; half of `BIG`."""


async def exhaust(line: Line, incoming: Incoming | None, within: float) -> None:
    """Ask (or read on) to the end, `within` seconds for each step."""
    incoming = incoming or await line.send(within=within)
    try:
        while await incoming.read(clock.now() + within):
            pass
    finally:
        incoming.close()


async def fails(line: Line, incoming: Incoming | None = None, *, within: float = SOON) -> str:
    """The cause that asking (or reading on) fails with; its words are for callers."""
    with pytest.raises(UpstreamFailure) as caught:
        await exhaust(line, incoming, within)
    detail = caught.value.detail
    assert detail
    assert not any(secret in detail for secret in ("127.0.0.1", "localhost", str(line.upstream.port), "sk-"))
    return caught.value.cause


async def settled(request: Request) -> int:
    """Bytes written of an answer, once they have stopped growing."""
    seen = -1
    while seen != request.written:
        seen = request.written
        await asyncio.sleep(0.2)
    return seen


# -- answers


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_a_body_in_every_framing(line: Line, framing: Framing) -> None:
    line.upstream.script(Reply([BODY, b" " * 70_000, b"{}"], framing=framing, headers={"X-Name": "Va lue"}))
    incoming = await line.send(b'{"a":1}')
    assert incoming.status == 200
    assert incoming.headers[b"x-name"] == b"Va lue"
    assert incoming.headers[b"content-type"] == b"application/json"
    assert await whole(incoming) == BODY + b" " * 70_000 + b"{}"
    assert await incoming.read(clock.now() + SOON) == b""
    assert line.client.busy == 0
    asked = await line.upstream.call()
    assert (asked.body, asked.header("host")) == (b'{"a":1}', "upstream")
    assert asked.header("authorization") == "Bearer sk-\xe9"
    assert asked.header("cookie") is None


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_an_empty_body(line: Line, framing: Framing) -> None:
    line.upstream.script(Reply(framing=framing))
    assert await line.ask() == (200, b"")


async def test_answers_without_a_body(line: Line) -> None:
    for status in (204, 304):
        line.upstream.script(Reply(status=status))
        assert await line.ask() == (status, b"")


async def test_an_answer_byte_by_byte(line: Line) -> None:
    line.upstream.script(*sends(Reply([b"ab", b"c"], framing="chunked").wire(), 1))
    assert await line.ask() == (200, b"abc")


async def test_interim_answers_are_no_answers(line: Line) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\nx-early: 1\r\n\r\n"
    line.upstream.script(*(Send(i) for i in interim), Send(OK))
    incoming = await line.send()
    assert (incoming.status, await whole(incoming)) == (200, BODY)
    assert b"x-early" not in incoming.headers


async def test_a_redirect_is_an_answer(line: Line) -> None:
    line.upstream.script(Reply(b"there", 302, {"location": line.upstream.url}))
    assert await line.ask() == (302, b"there")
    assert len(line.upstream.requests) == 1


async def test_trailers_are_left_out(line: Line) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    line.upstream.script(Send(head + b"2\r\nok\r\n0\r\nx-trailer: 1\r\n\r\n"))
    incoming = await line.send()
    assert await whole(incoming) == b"ok"
    assert b"x-trailer" not in incoming.headers


async def test_no_cookie_goes_from_one_call_to_another(line: Line) -> None:
    line.upstream.script(Reply(BODY, headers={"set-cookie": "session=of-another; Path=/"}))
    await line.ask()
    await line.ask()
    assert (await line.upstream.call(1)).header("cookie") is None


# -- compression, which nobody asked for


async def test_gzip_is_undone(line: Line) -> None:
    line.upstream.script(Reply([BODY, b"{}"], framing="chunked", gzip=True))
    assert await line.ask() == (200, BODY + b"{}")


async def test_compressed_bytes_are_undone_piece_by_piece(line: Line) -> None:
    """A bomb: each read gives a bounded piece, and stopping costs nothing."""
    line.upstream.script(Reply(gzip.compress(bytes(BIG)), headers={"content-encoding": "gzip"}))
    incoming = await line.send()
    sizes = [len(await incoming.read(clock.now() + SOON)) for _ in range(5)]
    assert min(sizes) > 0
    assert max(sizes) <= PIECE
    incoming.close()


@pytest.mark.parametrize(
    ("body", "encoding", "cause"),
    [
        (b"not gzip at all", "gzip", "bad_response"),
        (gzip.compress(BODY * 50)[:-9], "gzip", "cut"),
        (zlib.compress(BODY)[:-6], "deflate", "cut"),
        (b"whatever", "br", "bad_response"),
    ],
    ids=["no gzip", "gzip without its end", "deflate without its end", "unknown"],
)
async def test_broken_compression(line: Line, body: bytes, encoding: str, cause: str) -> None:
    line.upstream.script(Reply(body, headers={"content-encoding": encoding}))
    assert await fails(line) == cause


# -- answers that break off, or are none


HEAD_PARTS = [b"", b"HT", b"HTTP/1.1 200 OK\r\ncontent-le"]


@pytest.mark.parametrize("end", [Close(), Reset()], ids=["FIN", "RST"])
@pytest.mark.parametrize("part", HEAD_PARTS)
async def test_an_end_before_the_head(line: Line, part: bytes, end: Step) -> None:
    line.upstream.script(Send(part), end)
    assert await fails(line) == "cut"
    assert line.upstream.count() == 1


@pytest.mark.parametrize("end", [Close(), Reset()], ids=["FIN", "RST"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_an_end_in_the_body(line: Line, framing: Framing, end: Step) -> None:
    line.upstream.script(Reply([BODY, end, BODY], framing=framing))
    incoming = await line.send()
    assert await fails(line, incoming) == "cut"
    assert line.upstream.count() == 1


async def test_a_reset_is_no_end_even_where_the_end_is_the_length(line: Line) -> None:
    line.upstream.script(Reply([BODY, Reset()], framing="close"))
    assert await fails(line) == "cut"


GARBAGE = {
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "binary": bytes(range(256)),
    "no status": b"HTTP/1.1 abc\r\n\r\n",
    "a broken length": b"HTTP/1.1 200 OK\r\ncontent-length: ten\r\n\r\n0123456789",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "a broken chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\nab\r\n",
    "a long header": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 300_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"x: a\r\n" * 50_000 + b"\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 300_000,
    "a switch of protocols": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_garbage(line: Line, garbage: bytes) -> None:
    line.upstream.script(Send(garbage, separate=False), Hang())
    cause = await fails(line, within=5.0)
    assert CAUSES[cause].code == "upstream_bad_response"
    async with asyncio.timeout(SOON):
        await line.upstream.until_open(0)


async def test_bytes_after_an_answer_are_nobodys(line: Line) -> None:
    """Neither part of this answer nor the answer to the next request."""
    line.upstream.script(Send(OK + OK.replace(b"choices", b"another")))
    assert await line.ask() == (200, BODY)
    line.upstream.script(Reply(b"mine"))
    assert await line.ask() == (200, b"mine")
    assert line.upstream.connections.total == 2


# -- time


async def test_no_answer_in_time(line: Line) -> None:
    line.upstream.script(Hang())
    assert await fails(line, within=0.2) == "timeout"
    async with asyncio.timeout(SOON):
        await line.upstream.until_open(0)


async def test_a_head_that_drips_is_late_too(line: Line) -> None:
    drops = [step for byte in OK for step in (Send(bytes([byte]), separate=False), Pause(0.05))]
    line.upstream.script(*drops)
    assert await fails(line, within=0.3) == "timeout"


async def test_no_more_of_the_body_in_time(line: Line) -> None:
    line.upstream.script(Reply([BODY, Hang()], framing="chunked"))
    incoming = await line.send()
    assert await incoming.read(clock.now() + SOON) == BODY
    assert await fails(line, incoming, within=0.1) == "timeout"


async def test_the_time_for_the_head_does_not_bind_the_body(line: Line) -> None:
    line.upstream.script(Reply([BODY, Pause(0.8), b"later"], framing="chunked"))
    incoming = await line.send(within=0.6)
    assert await whole(incoming) == BODY + b"later"


# -- leaving


async def test_cancelling_the_wait_for_the_head_tells_the_upstream(line: Line) -> None:
    line.upstream.script(Hang())
    asking = asyncio.create_task(line.send())
    call = await line.upstream.call()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(SOON):
        await call.closed.wait()
    assert line.client.busy == 0


async def test_closing_an_unfinished_answer_tells_the_upstream(line: Line) -> None:
    line.upstream.script(Reply([BODY, Hang()], framing="chunked"))
    incoming = await line.send()
    incoming.close()
    incoming.close()
    assert line.client.busy == 0
    async with asyncio.timeout(SOON):
        await (await line.upstream.call()).closed.wait()


async def test_cancelling_a_read_tells_the_upstream(line: Line) -> None:
    line.upstream.script(Reply([BODY, Hang()], framing="chunked"))
    incoming = await line.send()
    assert await incoming.read(clock.now() + SOON) == BODY
    reading = asyncio.create_task(incoming.read(clock.now() + SOON))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    incoming.close()
    async with asyncio.timeout(SOON):
        await (await line.upstream.call()).closed.wait()


# -- connections


async def test_a_connection_is_kept(line: Line) -> None:
    for framing in ("length", "chunked", "length"):
        line.upstream.script(Reply(BODY, framing=framing))
        assert await line.ask() == (200, BODY)
    assert line.upstream.connections.total == (1 if line.kind.startswith("own") else 3)  # through a proxy none is kept


async def test_a_connection_is_not_kept_against_the_upstreams_will(line: Line) -> None:
    line.upstream.script(Send(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)))
    for _ in range(2):
        assert (await line.ask())[1]
    assert line.upstream.connections.total == 2


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
async def test_a_kept_connection_that_the_upstream_closed(line: Line, reset: bool) -> None:
    if not line.kind.startswith("own"):
        pytest.skip("through a proxy no connection is kept")
    line.upstream.script(Reply(BODY), times=2)
    await line.ask()
    async with asyncio.timeout(SOON):
        await (await line.upstream.call()).done.wait()
        assert line.upstream.close_idle(reset=reset) == 1
        await line.upstream.until_open(0)
        await line.proxy.until_idle()
    assert await line.ask() == (200, BODY)
    assert line.upstream.connections.total == 2


async def test_no_more_connections_than_allowed(lines: Lines) -> None:
    line = await lines(PoolLimits(connections=2, queue_seconds=0.1))
    gate = asyncio.Event()
    line.upstream.script(Reply([b"ab", WaitFor(gate), b"cd"], framing="chunked"), times=2)
    held = [await line.send(), await line.send()]
    assert line.client.busy == 2
    assert await fails(line) == "pool"
    gate.set()
    assert [await whole(incoming) for incoming in held] == [b"abcd"] * 2
    await line.ask()
    assert line.upstream.connections.peak == 2


async def test_who_waits_gets_the_next_free_connection(lines: Lines) -> None:
    line = await lines(PoolLimits(connections=1))
    gate = asyncio.Event()
    line.upstream.script(Reply([b"ab", WaitFor(gate), b"cd"], framing="chunked"))
    line.upstream.script(Reply(BODY))
    first = await line.send()
    waiting = asyncio.create_task(line.ask())
    await asyncio.sleep(0)
    gate.set()
    assert await whole(first) == b"abcd"
    first.close()
    assert await waiting == (200, BODY)
    assert line.upstream.connections.peak == 1


# -- size


async def test_a_large_request(line: Line) -> None:
    body = bytes(range(256)) * (BIG // 256)
    line.upstream.script(Reply(b"taken"))
    assert await line.ask(body) == (200, b"taken")
    assert (await line.upstream.call()).body == body


async def test_an_upstream_that_does_not_take_the_request(lines: Lines) -> None:
    line = await lines(receive_buffer=65536)
    line.upstream.script(StallRead(), Hang())
    assert await fails(line, within=0.3) == "timeout"


async def test_a_large_answer_waits_for_its_reader(lines: Lines) -> None:
    line = await lines(send_buffer=65536)
    pieces = [bytes([n % 256]) * 100_000 for n in range(BIG // 100_000)]
    line.upstream.script(Reply(pieces, framing="chunked", separate=False))
    incoming = await line.send()
    call = await line.upstream.call()
    async with asyncio.timeout(SOON):
        assert await settled(call) < KERNEL
    assert await whole(incoming) == b"".join(pieces)
    assert call.written > BIG
