"""C45: after every kind of end the connection is free again, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.upstream.pool import PoolLimits
from tests.conftest import StartGateway
from tests.fakes import Exchange, Hang, Reply, Reset, Send, Sse, Step, Upstream, WaitFor, answer, chunk, error
from tests.harness import Gateway, Served, config_for
from tests.wire.calls import LIMIT, STREAM, ask, text_of

pytestmark = pytest.mark.slow

CALLS = 50
TEN = PoolLimits(connections=10, queue_seconds=10)
BIG = b"x" * 900_000


async def read_it(gw: Served) -> None:
    await gw.chat(**STREAM)


async def read_plain(gw: Served) -> None:
    await gw.chat()


async def abort(gw: Served) -> None:
    async with gw.connect() as client:
        await client.send(ask())
        await anext((await client.response()).pieces())
        client.reset()


async def hurry(gw: Served) -> None:
    """Ask, and leave as soon as the gateway has read it."""
    async with gw.connect() as client:
        await client.send(ask(), separate=True)
        client.reset()


KINDS: dict[str, tuple[Step, Callable[[Served], Awaitable[None]]]] = {
    "429 on a stream": (error(429), read_it),
    "429 that goes on and on": (Reply([b'{"error":', Hang()], 429, framing="chunked"), hurry),
    "a long error": (Reply(BIG, 500, separate=False), read_it),
    "client abort": (Sse([chunk("Hi"), Hang()]), abort),
    "client abort of a long answer": (Sse([chunk("Hi"), *[chunk("x" * 9_000)] * 60], separate=False), abort),
    "a page": (Reply(b"<html>" + BIG, separate=False), read_it),
    "no HTTP": (Send(b"garbage\r\n\r\n"), read_plain),
    "broken chunking": (Sse([chunk("Hi"), lambda exchange: exchange.send(b"zz\r\n")]), read_it),
    "cut": (Sse([chunk("Hi"), Reset()]), read_it),
    "no content": (Sse([chunk("", "assistant")]), read_it),
    "success": (Sse(answer("Hi")), read_it),
}


async def settle(gw: Served) -> None:
    """Wait until no upstream call is under way."""
    async with asyncio.timeout(LIMIT):
        while (await gw.metrics()).total("turnout_in_flight"):
            pass


@pytest.mark.parametrize(("step", "call"), KINDS.values(), ids=KINDS)
async def test_c45_a_pool_of_ten_outlives_fifty_of_each(
    upstream: Upstream, gateway: StartGateway, step: Step, call: Callable[[Served], Awaitable[None]]
) -> None:
    gw = await gateway(upstream, pool_limits=TEN)
    upstream.script(step, times=None)
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*(call(gw) for _ in range(CALLS)))
        await settle(gw)
        upstream.scripts.clear()
        answers = await asyncio.gather(*(gw.chat("fine", **STREAM) for _ in range(10)))
    assert [text_of(a.body) for a in answers] == ["fine"] * 10
    assert upstream.connections.open <= 10


async def test_c45_fallback_frees_the_first_models_connection(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    upstream.script(Sse([chunk("", "assistant"), b'data: {"error":{"message":"x"}}\n\n', Hang()]), times=None)
    gw = await gateway(config_for(upstream, second), pool_limits=TEN)
    async with asyncio.timeout(LIMIT):
        answers = await asyncio.gather(*(gw.chat("hello", **STREAM) for _ in range(CALLS)))
        await upstream.until_open(0)
    assert {text_of(a.body) for a in answers} == {"hello"}


async def test_c45_a_full_pool_says_so_soon(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Hang())
    limits = PoolLimits(connections=1, queue_seconds=0.2)
    gw = await gateway(upstream, pool_limits=limits)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        await upstream.call()
        answered = await gw.chat(**STREAM)
        assert (answered.status, answered.json()["error"]["code"]) == (503, "gateway_overloaded")
        client.reset()
        await upstream.until_open(0)
        assert (await gw.chat()).status == 200
    assert gw.calls()[0]["outcome"] == "gateway_overloaded"


async def test_c45_a_caller_that_leaves_the_queue_passes_its_turn_on(upstream: Upstream, gateway: StartGateway) -> None:
    go = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await go.wait()
        await Sse(answer("one"))(exchange)

    upstream.script(wait)
    gw = await gateway(upstream, pool_limits=PoolLimits(connections=1, queue_seconds=10))
    async with asyncio.timeout(LIMIT), gw.connect() as first, gw.connect() as leaver, gw.connect() as last:
        await first.send(ask("one"))
        await upstream.call()
        await leaver.send(ask("two"), separate=True)
        await last.send(ask("three"), separate=True)
        leaver.reset()
        await gw.logged(event="call", outcome="client_closed")
        go.set()
        assert text_of(await (await last.response()).read()) == "three"
    assert upstream.count() == 2


async def test_c45_a_kept_connection_reads_again(upstream: Upstream, gateway: StartGateway) -> None:
    """The end of an answer had come, and filled the read-ahead, when its caller left without having taken it."""
    gw = await gateway(upstream, pool_limits=PoolLimits(connections=1))
    more = [chunk("x" * 200_000)] * 3  # one is being written, two fill the read-ahead
    upstream.script(Sse([chunk("x" * 12_000_000), *more], framing="length"))
    async with asyncio.timeout(LIMIT), gw.connect(receive_buffer=8192) as client:
        client.stop_reading()
        await client.send(ask())
        await (await upstream.call()).done.wait()
        client.reset()
        await gw.logged(event="call", outcome="client_closed")
        assert text_of((await gw.chat("fine", **STREAM)).body) == "fine"
    assert upstream.connections.total == 1


async def test_c45_a_late_close_does_not_touch_the_next_call(upstream: Upstream, gateway: StartGateway) -> None:
    """The caller takes slowly what the gateway has read to its end; meanwhile the connection serves somebody else."""
    gw = await gateway(upstream, pool_limits=PoolLimits(connections=1))
    go = asyncio.Event()
    upstream.script(Sse([chunk("x" * 12_000_000) + chunk(finish="stop")], separate=False))
    upstream.script(Sse([chunk("Hel"), WaitFor(go), *answer("lo")[1:]]))
    async with asyncio.timeout(LIMIT), gw.connect(receive_buffer=8192) as slow, gw.connect() as other:
        slow.stop_reading()
        await slow.send(ask())
        await (await upstream.call()).done.wait()
        await other.send(ask())
        pieces = (await other.response()).pieces()
        await anext(pieces)
        slow.resume_reading()
        await (await slow.response()).read()
        await gw.logged(event="call")
        go.set()
        rest = b"".join([piece.data async for piece in pieces])
    assert text_of(rest) == "lo"


BOOKS = 6
"""Descriptors that the ledger may open in the meantime; each kind of call that leaked would leave fifty."""


async def test_c45_descriptors_return_to_their_start(upstream: Upstream) -> None:
    """In a process of its own, where only the gateway's descriptors count."""

    async def settled(gw: Gateway) -> None:
        await settle(gw)
        upstream.close_idle()
        await upstream.until_open(0)

    async with Gateway(config_for(upstream)) as gw:
        async with asyncio.timeout(4 * LIMIT):
            await read_it(gw)
            await settled(gw)
            before = await gw.descriptors_at_rest()
            for step, call in KINDS.values():
                upstream.script(step, times=None)
                await asyncio.gather(*(call(gw) for _ in range(CALLS)))
                upstream.scripts.clear()
            await settled(gw)
            while await gw.descriptors_at_rest() > before + BOOKS:
                pass
