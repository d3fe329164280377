"""Connections to one address, over real sockets: who gets one, which are used again, and when they end."""

from __future__ import annotations

import asyncio
import random
import ssl

import pytest

from gateway import clock
from gateway.call import Incoming
from gateway.config.base_url import resolve
from gateway.upstream.pool import Pool, Pools
from tests.fakes import Close, Hang, Reply, Request, Reset, Send, StallRead, Step, Upstream, WaitFor, refusing_port
from tests.unit.upstream.asking import SOON, ask, failure, pool_to, send, turns

# -- the queue


async def test_a_full_pool_says_so_after_its_queue_time(upstream: Upstream) -> None:
    async with pool_to(upstream.url, connections=1, queue_seconds=0.1) as pool:
        upstream.script(Hang())
        held = asyncio.create_task(send(pool))
        await upstream.call()
        assert await failure(ask(pool)) == ("pool", "all connections are taken")
        assert (pool.busy, pool.open) == (1, 1)
        held.cancel()


async def test_the_deadline_ends_the_queue_too(upstream: Upstream) -> None:
    async with pool_to(upstream.url, connections=1) as pool:
        upstream.script(Hang())
        held = asyncio.create_task(send(pool))
        await upstream.call()
        assert (await failure(ask(pool, within=0.1)))[0] == "pool"
        held.cancel()


async def occupied(pool: Pool, upstream: Upstream, waiters: int) -> tuple[Incoming, list[asyncio.Task[bytes]]]:
    """The one connection is taken, by the answer that is returned; so many calls wait for it, named by their body."""
    upstream.script(Reply(b"held"))
    held = await send(pool)
    tasks = [asyncio.create_task(ask(pool, b"%d" % number)) for number in range(waiters)]
    await turns()
    assert pool.busy == 1
    assert await held.read(clock.now() + SOON) == b"held"
    return held, tasks


def bodies(upstream: Upstream) -> list[bytes]:
    """What was asked, after the call that held the connection."""
    return [call.body for call in upstream.calls[1:]]


async def test_who_came_first_is_served_first(upstream: Upstream) -> None:
    async with pool_to(upstream.url, connections=1) as pool:
        held, tasks = await occupied(pool, upstream, 3)
        late = asyncio.create_task(ask(pool, b"late"))  # runs before the first of them wakes
        held.close()
        await asyncio.gather(*tasks, late)
        assert bodies(upstream) == [b"0", b"1", b"2", b"late"]
    assert upstream.connections.peak == 1


async def test_nobody_overtakes_who_was_told_to_go(upstream: Upstream) -> None:
    """The connection is free and its call has not woken yet: it is not anybody's to take."""
    async with pool_to(upstream.url, connections=1) as pool:
        held, (first,) = await occupied(pool, upstream, 1)
        overtaking = asyncio.create_task(ask(pool, b"late"))
        held.close()
        await asyncio.gather(first, overtaking)
        assert bodies(upstream) == [b"0", b"late"]


async def test_a_caller_that_leaves_the_queue(upstream: Upstream) -> None:
    async with pool_to(upstream.url, connections=1) as pool:
        held, tasks = await occupied(pool, upstream, 3)
        tasks[0].cancel()
        await turns()
        held.close()
        await asyncio.gather(*tasks[1:])
        assert bodies(upstream) == [b"1", b"2"]


async def test_a_caller_that_leaves_as_it_is_told_to_go_passes_its_turn_on(upstream: Upstream) -> None:
    async with pool_to(upstream.url, connections=1) as pool:
        held, tasks = await occupied(pool, upstream, 3)
        held.close()
        tasks[0].cancel()
        tasks[1].cancel()
        assert await tasks[2] is not None
        assert bodies(upstream) == [b"2"]
        assert [task.cancelled() for task in tasks] == [True, True, False]
        await ask(pool)


async def test_a_turn_is_passed_on_when_connecting_fails(upstream: Upstream) -> None:
    with refusing_port() as port:
        async with pool_to(f"http://127.0.0.1:{port}", connections=1) as pool:
            failed = await asyncio.gather(*(failure(ask(pool)) for _ in range(5)))
            assert failed == [("connect", "connection refused")] * 5
            assert pool.open == 0


async def test_everybody_is_served_whatever_happens(upstream: Upstream) -> None:
    """Cancellations at any moment neither lose a connection nor make one too many."""
    dice = random.Random(7)
    async with pool_to(upstream.url, connections=3) as pool:
        tasks: list[asyncio.Task[bytes]] = []
        for number in range(200):
            tasks.append(asyncio.create_task(ask(pool, b'{"n":%d}' % number)))
            await turns(dice.randrange(4))
            if dice.random() < 0.4:
                dice.choice(tasks).cancel()
        async with asyncio.timeout(SOON):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert {task.exception() for task in tasks if not task.cancelled()} == {None}
        await asyncio.gather(*(ask(pool) for _ in range(6)))
    assert upstream.connections.peak <= 4  # one that is just being closed may still count there


# -- connections that are kept


@pytest.mark.parametrize("end", [Close(), Reset()], ids=["FIN", "RST"])
async def test_a_kept_connection_that_breaks_unanswered_is_replaced(upstream: Upstream, end: Step) -> None:
    async with pool_to(upstream.url, connections=1) as pool:
        await ask(pool)
        upstream.script(end)
        upstream.script(Reply(b"second"))
        assert await ask(pool, b'{"a":1}') == b"second"
        assert [call.body for call in upstream.calls[1:]] == [b'{"a":1}'] * 2
    assert upstream.connections.total == 2


async def test_it_is_replaced_once(upstream: Upstream) -> None:
    async with pool_to(upstream.url) as pool:
        await ask(pool)
        upstream.script(Reset(), times=None)
        assert (await failure(ask(pool)))[0] == "cut"
        assert upstream.count() == 3


async def test_a_new_connection_is_not_replaced(upstream: Upstream) -> None:
    async with pool_to(upstream.url) as pool:
        upstream.script(Reset())
        assert (await failure(ask(pool)))[0] == "cut"
        assert upstream.count() == 1


@pytest.mark.parametrize("part", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_nor_is_one_that_had_begun_to_answer(upstream: Upstream, part: bytes) -> None:
    async with pool_to(upstream.url) as pool:
        await ask(pool)
        upstream.script(Send(part), Reset())
        assert (await failure(ask(pool)))[0] == "cut"
        assert upstream.count() == 2


async def test_a_replacement_stays_within_the_limit(upstream: Upstream) -> None:
    """Another call is served while it waits; the connection that this one leaves idle makes room for the new one."""
    async with pool_to(upstream.url, connections=1) as pool:
        await ask(pool)
        gate = asyncio.Event()
        upstream.script(WaitFor(gate), Reset())
        breaking = asyncio.create_task(ask(pool, b"breaks"))
        await upstream.call(1)
        waiting = asyncio.create_task(ask(pool, b"waits"))
        await turns()
        gate.set()
        await asyncio.gather(breaking, waiting)
        assert [call.body for call in upstream.calls[1:]] == [b"breaks", b"waits", b"breaks"]
        async with asyncio.timeout(SOON):
            await upstream.until_open(1)
        assert (pool.open, upstream.connections.total) == (1, 3)


async def test_idle_connections_end(upstream: Upstream) -> None:
    async with pool_to(upstream.url, idle_seconds=0.01) as pool:
        await asyncio.gather(*(ask(pool) for _ in range(3)))
        async with asyncio.timeout(SOON):
            await upstream.until_open(0)
        assert pool.open == 0


@pytest.mark.parametrize("limit", ["idle_seconds", "age_seconds"])
async def test_what_is_past_its_time_is_not_used_again(upstream: Upstream, limit: str) -> None:
    async with pool_to(upstream.url, None, **{limit: 0.0}) as pool:
        for _ in range(3):
            await ask(pool)
        assert upstream.connections.total == 3


async def test_the_last_used_connection_is_used_first(upstream: Upstream) -> None:
    """So that those too many grow old."""
    async with pool_to(upstream.url) as pool:
        await asyncio.gather(ask(pool), ask(pool))
        for _ in range(3):
            await ask(pool)
        assert len({call.connection for call in upstream.calls[2:]}) == 1


async def test_an_answer_before_the_request_was_read(upstream: Upstream) -> None:
    """It is passed on at once, and the rest of the request is nobody's next one."""
    async with pool_to(upstream.url) as pool:
        upstream.script(StallRead(), Reply(b"too large", 413), Hang())
        incoming = await send(pool, b"x" * 30_000_000)
        assert (incoming.status, await incoming.read(clock.now() + SOON)) == (413, b"too large")
        incoming.close()
        await turns()
        assert pool.open == 0


async def test_an_answer_that_is_almost_over_keeps_its_connection(upstream: Upstream) -> None:
    gate = asyncio.Event()
    async with pool_to(upstream.url) as pool:
        upstream.script(Reply([b"all that matters", WaitFor(gate), b"the rest"], framing="chunked"))
        incoming = await send(pool)
        incoming.close(almost_over=True)
        gate.set()
        async with asyncio.timeout(SOON):
            while pool.busy:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await ask(pool)
        assert upstream.connections.total == 1


# -- the end


async def test_a_closed_pool_lets_answers_end(upstream: Upstream) -> None:
    gate = asyncio.Event()
    async with pool_to(upstream.url) as pool:
        await asyncio.gather(ask(pool), ask(pool))
        upstream.script(Reply([b"begin", WaitFor(gate), b"end"], framing="length"))
        incoming = await send(pool)
        assert await incoming.read(clock.now() + SOON) == b"begin"
        pool.close()
        async with asyncio.timeout(SOON):
            await upstream.until_open(1)
        gate.set()
        assert await incoming.read(clock.now() + SOON) == b"end"
        assert await incoming.read(clock.now() + SOON) == b""
        assert await ask(pool)  # a call that began before still gets its answer
        async with asyncio.timeout(SOON):
            await upstream.until_open(0)
        assert pool.open == 0


async def test_a_closed_pool_does_not_wait_for_answers_that_nobody_reads(upstream: Upstream) -> None:
    async with pool_to(upstream.url) as pool:
        upstream.script(Reply([b"all", Hang()], framing="chunked"))
        incoming = await send(pool)
        incoming.close(almost_over=True)
        assert pool.busy == 1
        pool.close()
        assert pool.busy == 0
        async with asyncio.timeout(SOON):
            await upstream.until_open(0)


# -- pools


async def test_one_pool_per_address(upstream: Upstream) -> None:
    made: list[ssl.SSLContext] = []

    def tls() -> ssl.SSLContext:
        made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return made[-1]

    pools = Pools(tls=tls)
    target = resolve(upstream.url)
    assert pools.get(target) is pools.get(resolve(upstream.url))
    assert pools.context(target) is None
    assert made == []
    a, b = resolve("https://a.test"), resolve("https://b.test")
    assert pools.get(a) is not pools.get(b)
    assert pools.context(a) is pools.context(b) is made[0]
    assert len(made) == 1
    pools.close()


async def test_pools_that_are_not_named_any_more_end(upstream: Upstream) -> None:
    async with Upstream() as other:
        pools = Pools()
        kept, dropped = pools.get(resolve(upstream.url)), pools.get(resolve(other.url))
        await asyncio.gather(ask(kept), ask(dropped))
        pools.keep(frozenset({resolve(upstream.url)}))
        async with asyncio.timeout(SOON):
            await other.until_open(0)
        assert upstream.connections.open == 1
        assert pools.get(resolve(upstream.url)) is kept
        pools.close()
        async with asyncio.timeout(SOON):
            await upstream.until_open(0)


async def test_requests_are_sent_as_they_are(upstream: Upstream) -> None:
    async with pool_to(upstream.url) as pool:
        await ask(pool, b'{"text":"\xe4\xbd\xa0"}')
        call: Request = await upstream.call()
        assert call.head == b"POST /v1/chat/completions HTTP/1.1\r\nhost: upstream\r\ncontent-length: 14\r\n\r\n"
        assert call.body == b'{"text":"\xe4\xbd\xa0"}'
