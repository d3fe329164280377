"""Redis in trouble: refused, frozen, slow, restarted empty, read-only, absent at the start; and its return."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from gateway import clock
from gateway.config.redis_url import Address
from gateway.limits.guard import GuardedStore, Pace
from gateway.limits.memory import MemoryStore
from gateway.limits.redis import RedisStore
from gateway.limits.store import Demand, Purse, Rate, Settled, Slot, StoreDown
from tests.fakes import silent_port
from tests.fakes.delay import Delay
from tests.fakes.redis import RedisServer
from tests.unit.limits.log import Log

RETURN, SOON = 10.0, 30.0
"""Seconds within which Redis is used again (the requirement), and that end only tests that have failed."""
PERIOD = 1e6
"""So long that nothing refills."""
QUICK = Pace(beat=0.1, alive=1.0, probe=0.1)
RATE, SLOT, PURSE = Rate("rate", 10, 1), Slot("slot", 1), Purse("purse", 100, 40, 0, 1000)


class Replica:
    """One process's guarded store and what it told."""

    def __init__(self, url: str, on_failure: Any = "share", **options: Any) -> None:
        self.log = Log()
        self.gauge: list[int] = []
        self.leases = itertools.count()
        self.redis, memory = RedisStore(Address.parse(url), PERIOD, 1e6), MemoryStore(PERIOD, 1e6)
        options.setdefault("pace", QUICK)
        self.store = GuardedStore(self.redis, memory, on_failure, cast("Any", self.log), self.gauge.append, **options)

    async def is_up(self, up: bool = True) -> None:
        async with asyncio.timeout(RETURN):
            while self.store.up != up:  # noqa: ASYNC110 - the guard tells a gauge, not a test
                await asyncio.sleep(0.01)

    async def counts(self, replicas: int) -> None:
        async with asyncio.timeout(SOON):
            while self.store.replicas != replicas:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def takes(self, lease: str, *demands: Demand) -> bool:
        """Taken, and within the time that a call may wait."""
        began = clock.now()
        taken = await self.store.take(lease, demands)
        assert clock.now() - began < 1
        return taken.refused is None

    async def admitted(self, demand: Demand, most: int = 100) -> int:
        """How many takes in a row are granted."""
        for number in range(most):
            if not await self.takes(f"{id(self)}-{next(self.leases)}", demand):
                return number
        return most


@pytest.fixture(scope="module")
def shared() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def server(shared: RedisServer) -> RedisServer:
    """A running server, empty."""
    shared.ask("FLUSHALL")
    return shared


Start = Callable[..., Any]


@pytest.fixture
async def start(server: RedisServer) -> AsyncIterator[Start]:
    """Starts replicas on the server, or on another URL."""
    async with AsyncExitStack() as stack:

        async def started(url: str = server.url, **options: Any) -> Replica:
            replica = Replica(url, **options)
            await replica.store.start()
            stack.push_async_callback(replica.store.close)
            return replica

        yield started
        server.thaw()


def paid(money: int) -> list[Settled]:
    return [Settled(RATE, 1, 1), Settled(SLOT, 1, 0), Settled(PURSE, 40, money)]


# -- the three ways


async def test_share_divides_by_the_last_known_replicas(start: Start, server: RedisServer) -> None:
    replicas = [await start() for _ in range(3)]
    for replica in replicas:
        await replica.counts(3)
    assert await replicas[0].admitted(RATE) == 10
    server.freeze()
    parts = [await replica.admitted(RATE) for replica in replicas]
    assert parts == [3, 3, 3]
    assert [await replica.admitted(Slot("s", 5)) for replica in replicas] == [1, 1, 1]
    assert [await replica.admitted(Rate("few", 2, 1)) for replica in replicas] == [1, 1, 1]
    assert [replica.gauge for replica in replicas] == [[1, 0]] * 3


async def test_the_stated_bound_of_what_share_lets_through(start: Start, server: RedisServer) -> None:
    """Nothing refills here: one limit, and one more for each change; Redis even loses its data."""
    replicas = [await start() for _ in range(3)]
    for replica in replicas:
        await replica.counts(3)
    admitted = [await replica.admitted(RATE) for replica in replicas]
    for changes in (2, 4):
        server.stop()
        for replica in replicas:
            await replica.is_up(False)
        admitted += [await replica.admitted(RATE) for replica in replicas]
        server.start()
        for replica in replicas:
            await replica.is_up()
        for _ in range(2):
            admitted += [await replica.admitted(RATE) for replica in replicas]
        assert sum(admitted) <= RATE.capacity * (1 + changes)
    assert sum(admitted) == 10 + 9 + 10 + 0 + 10  # a part that was used up does not come back by itself


async def test_calls_at_the_same_time_are_at_most_twice_the_limit(start: Start, server: RedisServer) -> None:
    replicas, slots = [await start() for _ in range(2)], Slot("slots", 4)
    for replica in replicas:
        await replica.counts(2)
    held = [await replica.admitted(slots) for replica in replicas]
    server.freeze()
    held += [await replica.admitted(slots) for replica in replicas]
    server.thaw()
    for replica in replicas:
        await replica.is_up()
        held.append(await replica.admitted(slots))
    assert held == [4, 0, 2, 2, 0, 0]


async def test_a_call_larger_than_its_part_is_admitted_into_debt(start: Start, server: RedisServer) -> None:
    replica = await start(replicas=4, pace=Pace())
    server.freeze()
    large = Rate("tokens", 100, 80)
    taken = await replica.store.take("a", [large])
    assert taken.reserved == (25,)
    replica.store.settle("a", [Settled(large, 25, 75)])
    assert not await replica.takes("b", Rate("tokens", 100, 1))
    assert await replica.store.peek([large]) == (0,)


async def test_open_admits_and_charges_later(start: Start, server: RedisServer) -> None:
    replica = await start(on_failure="open")
    server.freeze()
    assert await replica.admitted(RATE) == 100
    assert await replica.store.peek([RATE, SLOT]) == (10, 1)
    assert await replica.takes("a", RATE, SLOT, PURSE)
    replica.store.settle("a", paid(30))
    server.thaw()
    await replica.is_up()
    assert await replica.store.peek([PURSE]) == (70,)


async def test_closed_refuses(start: Start, server: RedisServer) -> None:
    replica = await start(on_failure="closed")
    server.freeze()
    for _ in range(3):
        with pytest.raises(StoreDown):
            await replica.takes("a", RATE)
    with pytest.raises(StoreDown):
        await replica.store.peek([RATE])
    server.thaw()
    await replica.is_up()
    assert await replica.takes("a", RATE)


# -- kinds of trouble


@pytest.mark.seconds
async def test_frozen(start: Start, server: RedisServer) -> None:
    replica = await start(pace=Pace())
    server.freeze()
    assert all(await asyncio.gather(*(replica.takes(f"f{n}", Rate("many", 100, 1)) for n in range(50))))
    began = clock.now()
    for number in range(100):
        await replica.takes(f"g{number}", Rate("more", 1000, 1))
    assert clock.now() - began < 1  # nobody waits for Redis any more: together no longer than one call might
    await asyncio.sleep(2.5)  # long enough that the connection is given up
    server.thaw()
    await replica.is_up()
    assert replica.log.events == ["up", "down", "up"]
    assert replica.gauge == [1, 0, 1]


async def test_refused_and_restarted_empty(start: Start, server: RedisServer) -> None:
    replica = await start()
    assert await replica.takes("a", RATE, SLOT, PURSE)
    server.stop()
    await replica.is_up(False)
    assert await replica.admitted(RATE) == 10
    replica.store.settle("a", paid(40))
    server.start()
    await replica.is_up()
    known = Purse("purse", 100, 40, 10, 1000)
    assert await replica.store.peek([RATE, SLOT, known]) == (10, 1, 60)


async def test_down_at_the_start(start: Start, server: RedisServer) -> None:
    server.stop()
    replica = await start()
    assert replica.log.events == ["down"]
    assert await replica.admitted(RATE) == 10
    server.start()
    await replica.is_up()
    assert replica.log.events == ["down", "up"]


async def test_a_refused_login_is_told_in_the_words_of_redis(start: Start, server: RedisServer) -> None:
    replica = await start(server.url.replace("//", "//nobody:secret@"))
    ((event, words),) = replica.log.lines
    assert (event, words["reason"][:15]) == ("the limit store is down", "AUTH: WRONGPASS")
    assert "secret" not in str(words)


async def test_nowhere_at_the_start(start: Start) -> None:
    began = clock.now()
    with silent_port() as port:
        replica = await start(f"redis://:secret@127.0.0.1:{port}", replicas=2)
        assert clock.now() - began < 1
        assert await replica.admitted(RATE) == 5
    assert "secret" not in repr(replica.log.lines)


async def test_slow(start: Start, server: RedisServer) -> None:
    async with Delay(server.port) as proxy:
        replica = await start(f"redis://127.0.0.1:{proxy.port}")
        proxy.seconds = 0.4
        assert await replica.takes("a", RATE, SLOT, PURSE)  # here, since Redis takes too long
        await replica.is_up(False)
        proxy.seconds = 0.0
        await replica.is_up()
        replica.store.settle("a", paid(7))
        assert await replica.store.peek([RATE, SLOT, PURSE]) == (10, 1, 93)  # the late take was given back


async def test_slow_but_not_too_slow(start: Start, server: RedisServer) -> None:
    async with Delay(server.port) as proxy:
        replica = await start(f"redis://127.0.0.1:{proxy.port}")
        proxy.seconds = 0.04
        assert await replica.takes("a", RATE)
        assert replica.log.events == ["up"]


async def test_read_only(start: Start, server: RedisServer) -> None:
    replica = await start()
    try:
        server.ask("REPLICAOF", "127.0.0.1", "1")
        assert await replica.admitted(RATE) == 10
        assert replica.log.events == ["up", "down"]
        assert "READONLY" in replica.log.lines[1][1]["reason"]
    finally:
        server.ask("REPLICAOF", "NO", "ONE")
    await replica.is_up()


async def test_scripts_forgotten_are_no_trouble(start: Start, server: RedisServer) -> None:
    replica = await start()
    server.ask("SCRIPT", "FLUSH")
    assert await replica.admitted(RATE) == 10
    assert replica.log.events == ["up"]


@pytest.mark.seconds
async def test_killed_under_load(start: Start, server: RedisServer) -> None:
    """Every call ends, in time; slots and money are right afterwards."""
    replicas = [await start() for _ in range(2)]
    stop, done = asyncio.Event(), 0
    slots, money = Slot("slots", 1000), Purse("money", 10**9, 5, 0, 1000)

    async def client(replica: Replica, name: str) -> None:
        nonlocal done
        number = 0
        while not stop.is_set():
            number += 1
            lease = f"{name}-{number}"
            assert await replica.takes(lease, slots, money)
            await asyncio.sleep(0.002)
            replica.store.settle(lease, [Settled(slots, 1, 0), Settled(money, 5, 1)])
            done += 1

    async with asyncio.TaskGroup() as clients:
        for number in range(16):
            clients.create_task(client(replicas[number % 2], str(number)))
        await asyncio.sleep(0.3)
        server.freeze()
        await asyncio.sleep(1.0)
        server.thaw()
        for replica in replicas:
            await replica.is_up()
        await asyncio.sleep(0.3)
        stop.set()
    for replica in replicas:
        await replica.redis.finish()
    assert await replicas[0].store.peek([slots, money]) == (1000, 10**9 - done)


# -- leases, slots and money across an outage


async def test_a_lease_is_settled_where_it_was_taken(start: Start, server: RedisServer) -> None:
    replica = await start()
    assert await replica.takes("before", SLOT, PURSE)
    server.freeze()
    assert await replica.takes("during", SLOT, PURSE)
    assert not await replica.takes("more", SLOT)
    replica.store.settle("during", [Settled(SLOT, 1, 0), Settled(PURSE, 40, 5)])
    assert await replica.takes("next", SLOT)
    replica.store.settle("next", [Settled(SLOT, 1, 0)])
    server.thaw()
    await replica.is_up()
    assert await replica.store.peek([SLOT, PURSE]) == (0, 55)
    replica.store.settle("before", [Settled(SLOT, 1, 0), Settled(PURSE, 40, 5)])
    assert await replica.store.peek([SLOT, PURSE]) == (1, 90)


async def test_a_lease_may_lie_in_both(start: Start, server: RedisServer) -> None:
    replica = await start()
    other = Slot("other", 1)
    assert await replica.takes("a", SLOT)
    server.freeze()
    assert await replica.takes("a", other)
    replica.store.renew([("a", [SLOT, other])])
    replica.store.settle("a", [Settled(SLOT, 1, 0), Settled(other, 1, 0)])
    assert await replica.takes("b", other)
    server.thaw()
    await replica.is_up()
    assert await replica.store.peek([SLOT]) == (1,)


async def test_slots_of_calls_that_began_without_redis_count_there_at_its_return(
    start: Start, server: RedisServer
) -> None:
    replica = await start()
    server.freeze()
    assert await replica.takes("a", SLOT)
    server.thaw()
    await replica.is_up()
    assert not await replica.takes("b", SLOT)
    replica.store.renew([("a", [SLOT])])
    replica.store.settle("a", [Settled(SLOT, 1, 0)])
    assert await replica.takes("b", SLOT)


async def test_a_budget_is_not_overspent_by_more_than_a_call_of_each_replica(start: Start, server: RedisServer) -> None:
    replicas = [await start() for _ in range(2)]
    for replica in replicas:
        await replica.counts(2)
    for replica in replicas:
        assert await replica.takes("first", PURSE)
        replica.store.settle("first", [Settled(PURSE, 40, 20)])
        await replica.store.take("look", [Purse("purse", 100, 0, 0, 1000)])
    server.freeze()
    spent = 40
    for replica in replicas:
        for number in range(10):
            if await replica.takes(str(number), PURSE):
                replica.store.settle(str(number), [Settled(PURSE, 40, 20)])
                spent += 20
    assert 100 <= spent <= 100 + 2 * 20
    server.thaw()
    for replica in replicas:
        await replica.is_up()
    assert not await replicas[0].takes("last", PURSE)


@pytest.mark.seconds
async def test_heartbeats_of_those_who_ended_are_not_counted(start: Start) -> None:
    one, two = await start(), await start()
    await one.counts(2)
    await two.store.close()
    await one.counts(1)
