"""What only the Redis store has: scripts that are forgotten, logins without rights, replicas, cluster nodes, answers
that nobody waits for any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.config.redis_url import Address
from gateway.limits.redis import RedisStore
from gateway.limits.store import Demand, Purse, Rate, Settled, Slot, StoreDown
from tests.fakes.delay import Delay
from tests.fakes.redis import RedisServer

SOON = 30.0
"""Seconds; ends only tests that have failed."""
RATE, SLOT, PURSE = Rate("rate", 10, 1), Slot("slot", 1), Purse("purse", 100, 40, 0, 1000)
EVERY: tuple[Demand, ...] = (RATE, SLOT, PURSE)
PERIOD = 1e6


@pytest.fixture(scope="module")
def shared() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def server(shared: RedisServer) -> RedisServer:
    """A running server, empty."""
    shared.ask("FLUSHALL")
    shared.ask("SCRIPT", "FLUSH")
    return shared


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisStore]:
    """A connected store."""
    store = RedisStore(Address.parse(url), PERIOD)
    try:
        await reconnect(store)
        yield store
    finally:
        store.close()


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    async with opened(server.url) as connected:
        yield connected


def used(money: int = 0, requests: int = 1) -> list[Settled]:
    return [Settled(RATE, 1, requests), Settled(SLOT, 1, 0), Settled(PURSE, 40, money)]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def reconnect(store: RedisStore) -> None:
    """As the guard does it: again and again."""
    async with asyncio.timeout(SOON):
        while True:
            with suppress(StoreDown):
                return await store.connect()
            await asyncio.sleep(0.05)


# -- scripts


async def test_scripts_that_redis_has_forgotten_are_sent_again(store: RedisStore, server: RedisServer) -> None:
    server.ask("SCRIPT", "FLUSH")
    assert (await store.take("a", EVERY)).refused is None
    server.ask("SCRIPT", "FLUSH")
    store.settle("a", used(money=7))
    store.renew([("b", EVERY)])
    await until(lambda: server.ask("HGET", "{turnout}:purse:purse", "spent") == "7")
    assert await store.peek([RATE, PURSE]) == (9, 93)


async def test_a_login_without_the_right_to_script(server: RedisServer) -> None:
    server.ask("ACL", "SETUSER", "plain", "on", ">pass", "~{turnout}:*", "+@all", "-script")
    async with opened(server.url.replace("//", "//plain:pass@")) as store:
        server.ask("SCRIPT", "FLUSH")
        assert (await store.take("a", EVERY)).refused is None
        store.settle("a", used())
        await until(lambda: server.ask("EXISTS", "{turnout}:slot:slot") == 0)
        assert await store.peek(EVERY) == (9, 1, 100)


async def test_a_refused_login_is_not_repeated_in_words(server: RedisServer) -> None:
    server.ask("ACL", "SETUSER", "plain", "on", ">pass", "+@all", "~*")
    store = RedisStore(Address.parse(server.url.replace("//", "//plain:secret@")))
    with pytest.raises(StoreDown, match="WRONGPASS") as refused:
        await store.connect()
    assert "secret" not in repr(refused.value)


async def test_every_key_expires_and_has_the_same_hash_tag(store: RedisStore, server: RedisServer) -> None:
    await store.take("a", EVERY)
    await store.take("b", [Rate("rate", 10, 2)])
    store.settle("a", used(money=5, requests=3))
    store.renew([("c", EVERY)])
    await store.beat("one", 5)
    keys = server.ask("KEYS", "*")
    assert {key.split(":")[1] for key in keys} == {"rate", "slot", "purse", "replicas"}
    assert all(key.startswith("{turnout}:") and server.ask("PTTL", key) > 0 for key in keys)


async def test_what_an_eviction_leaves_of_a_purse_heals(store: RedisStore, server: RedisServer) -> None:
    await store.take("a", [PURSE])
    server.ask("DEL", "{turnout}:held:purse")
    assert (await store.take("b", [PURSE])).left == (60,)
    server.ask("DEL", "{turnout}:purse:purse")
    assert (await store.take("c", [PURSE])).left == (60,)


async def test_a_unix_socket_and_a_database(server: RedisServer) -> None:
    async with opened(server.unix_url + "?db=3") as store:
        await store.take("a", EVERY)
    assert server.ask("INFO", "keyspace").count("db3:") == 1


async def test_heartbeats_are_counted_and_end(store: RedisStore) -> None:
    assert [await store.beat(name, 1000) for name in ("one", "two", "one")] == [1, 2, 2]
    store.leave("two")
    assert await store.beat("one", 1000) == 1
    await store.beat("three", 1000)
    await asyncio.sleep(0.1)
    assert await store.beat("one", 0.05) == 1


# -- trouble


async def test_a_cancelled_take_is_given_back(store: RedisStore, server: RedisServer) -> None:
    server.freeze()
    taking = asyncio.ensure_future(store.take("a", EVERY))
    await asyncio.sleep(0)
    taking.cancel()
    server.thaw()
    await until(lambda: server.ask("EXISTS", "{turnout}:purse:purse"))
    await until(lambda: server.ask("EXISTS", "{turnout}:slot:slot") == 0)
    assert await store.peek(EVERY) == (10, 1, 100)


async def test_a_take_that_is_answered_late_is_given_back(store: RedisStore, server: RedisServer) -> None:
    down: list[str] = []
    store.down = down.append
    server.freeze()
    with pytest.raises(StoreDown):
        await store.take("a", EVERY)
    assert down == ["no answer in time"]
    server.thaw()
    await reconnect(store)
    assert await store.peek(EVERY) == (10, 1, 100)
    assert len(store.backlog) == 0


async def test_a_take_whose_connection_ended_is_given_back(store: RedisStore, server: RedisServer) -> None:
    server.freeze()
    with pytest.raises(StoreDown):
        await store.take("a", EVERY)
    assert store._link is not None
    store._link.close()
    server.thaw()
    await reconnect(store)
    assert await store.peek([SLOT, PURSE]) == (1, 100)


async def test_a_settlement_of_which_nobody_knows_is_charged_once(store: RedisStore, server: RedisServer) -> None:
    for lease, frozen in (("a", True), ("b", False)):
        assert (await store.take(lease, EVERY)).refused is None
        if frozen:
            server.freeze()
        store.settle(lease, used(money=5))
        assert store._link is not None
        store._link.close()
        server.thaw()
        await reconnect(store)
        assert (await store.peek([SLOT]))[0] == 1
    assert await store.peek([PURSE]) == (90,)


async def test_what_could_not_be_sent_is_sent_at_the_return(store: RedisStore, server: RedisServer) -> None:
    await store.take("a", EVERY)
    assert store._link is not None
    store._link.close()
    store.settle("a", used(money=5))
    for _ in range(3):
        store.charge([Settled(PURSE, 0, 2)])
    await reconnect(store)
    assert await store.peek([SLOT, PURSE]) == (1, 89)


async def test_a_restart_loses_no_more_than_redis_had(store: RedisStore, server: RedisServer) -> None:
    await store.take("a", EVERY)
    server.restart()
    await until(lambda: store._link is None or store._link.lost)
    store.settle("a", [Settled(PURSE, 40, 5)])
    await reconnect(store)
    store.renew([("a", [SLOT])])  # its call is still running
    assert await store.peek([SLOT, PURSE]) == (0, 95)
    known = Purse("purse", 100, 40, 30, 1000)
    assert await store.peek([known]) == (70,)


async def test_nonsense_is_no_answer(store: RedisStore, server: RedisServer) -> None:
    server.ask("SET", "{turnout}:slot:slot", "x")
    with pytest.raises(StoreDown, match="WRONGTYPE"):
        await store.take("a", EVERY)
    down: list[str] = []
    store.down = down.append
    store.settle("a", used())
    await until(lambda: down)
    assert len(store.backlog) == 0  # another try would end the same way


async def test_a_replica_is_left_for_whoever_is_master_now(store: RedisStore, server: RedisServer) -> None:
    down: list[str] = []
    store.down = down.append
    await store.take("a", EVERY)
    try:
        server.ask("REPLICAOF", "127.0.0.1", "1")
        store.settle("a", used(money=5))
        await until(lambda: down)
        assert "READONLY" in down[0]
        with pytest.raises(StoreDown):
            await store.connect()
    finally:
        server.ask("REPLICAOF", "NO", "ONE")
    await reconnect(store)
    assert await store.peek([SLOT, PURSE]) == (1, 95)


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[RedisServer, RedisServer, int]]:
    """Two nodes; the second has the slot of all our keys, which is the third value."""
    options = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
    with RedisServer(*options) as first, RedisServer(*options) as second:
        slot = first.ask("CLUSTER", "KEYSLOT", "{turnout}:rate:rate")
        first.ask("CLUSTER", "MEET", "127.0.0.1", second.port)
        first.ask("CLUSTER", "ADDSLOTSRANGE", 0, slot - 1)
        second.ask("CLUSTER", "ADDSLOTSRANGE", slot, 16383)
        await until(lambda: f"{slot}-16383" in first.ask("CLUSTER", "NODES"))
        await until(lambda: all("cluster_state:ok" in one.ask("CLUSTER", "INFO") for one in (first, second)))
        yield first, second, slot


def hand_over(slot: int, node: RedisServer, before: RedisServer) -> None:
    for one in (before, node):
        one.ask("CLUSTER", "SETSLOT", slot, "NODE", node.ask("CLUSTER", "MYID"))


@pytest.mark.seconds
async def test_a_cluster_is_followed_to_the_node_that_has_the_slot() -> None:
    async with cluster() as (first, second, slot), opened(first.url) as store:
        await store.take("a", EVERY)
        assert second.ask("CLUSTER", "COUNTKEYSINSLOT", slot) > 0
        second.ask("FLUSHALL")
        hand_over(slot, first, second)
        with pytest.raises(StoreDown, match="MOVED"):
            await store.take("b", EVERY)
        await store.connect()
        assert (await store.take("b", EVERY)).refused is None
        assert first.ask("CLUSTER", "COUNTKEYSINSLOT", slot) > 0


@pytest.mark.seconds
async def test_when_a_clusters_node_dies_the_configured_one_is_asked_again() -> None:
    async with cluster() as (first, second, slot), opened(first.url) as store:
        await store.take("a", EVERY)
        second.ask("FLUSHALL")
        hand_over(slot, first, second)
        second.stop()
        await reconnect(store)
        assert (await store.take("b", EVERY)).refused is None


@pytest.mark.seconds
async def test_a_connection_that_is_silently_dead_is_replaced(server: RedisServer) -> None:
    async with Delay(server.port) as proxy, opened(f"redis://127.0.0.1:{proxy.port}") as store:
        proxy.seconds = 3600.0
        with pytest.raises(StoreDown, match="in time"):
            await store.take("a", EVERY)
        proxy.seconds = 0.0  # for new connections; what was sent through the old one stays under way
        await reconnect(store)
        assert (await store.take("b", EVERY)).refused is None
