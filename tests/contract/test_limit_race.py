"""Several processes, one Redis: never more than the limit and its burst, never fewer than the limit allows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from gateway.config.redis_url import Address
from gateway.limits.redis import RedisStore
from gateway.limits.store import Demand, Rate, Slot
from tests.contract.limit_race import Race, race, with_a_slot
from tests.contract.limit_stores import PATIENT, connected
from tests.fakes.delay import Delay
from tests.fakes.redis import RedisServer


@pytest.fixture(scope="module")
def shared() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def server(shared: RedisServer) -> RedisServer:
    """A running server, empty."""
    shared.ask("FLUSHALL")
    return shared


@pytest.mark.seconds
def test_c32_a_burst_over_two_processes(server: RedisServer) -> None:
    seen = race(Race(server.url, capacity=10, period=60.0, clients=100, seconds=0.0), processes=2)
    took = max(s.last_answered for s in seen) - min(s.first_sent for s in seen)
    assert took < 6  # the eleventh unit comes after six seconds
    assert sum(s.granted for s in seen) == 10
    waits = [wait for s in seen for wait in s.waits]
    assert len(waits) == 190
    assert all(6 - took - 0.1 < wait <= 6 for wait in waits)  # no refusal pushes the window further out


@pytest.mark.slow
def test_ten_periods_four_processes_sixty_four_clients(server: RedisServer) -> None:
    what = Race(server.url, capacity=50, period=0.6, clients=16, seconds=6.0)
    seen = race(what, processes=4)
    admitted = sum(s.granted for s in seen)
    longest = max(s.last_answered for s in seen) - min(s.first_sent for s in seen)
    shortest = max(s.last_sent for s in seen) - min(s.first_answered for s in seen)
    assert shortest > 9 * what.period
    # One period's limit at once (the burst), and then as it refills. The last unit may still be incomplete.
    assert what.capacity * (1 + shortest / what.period) - 1 <= admitted
    assert admitted <= what.capacity * (1 + longest / what.period)


@pytest.mark.seconds
def test_the_slot_of_a_killed_process_comes_back_after_the_lease_time(server: RedisServer) -> None:
    slot, lease_seconds = Slot("one", 1), 1.0

    async def first_success(patience: float) -> float:
        store = RedisStore(Address.parse(server.url), 60.0, lease_seconds, answer=PATIENT)
        await connected(store)
        began = time.monotonic()
        while time.monotonic() - began < patience:
            if (await store.take("next", [slot])).refused is None:
                store.close()
                return time.monotonic() - began
            await asyncio.sleep(0.02)
        store.close()
        return patience

    def alive() -> None:
        assert asyncio.run(first_success(1.5)) == 1.5  # renewed, for longer than the lease time

    with_a_slot(server.url, slot, lease_seconds, alive)
    assert asyncio.run(first_success(30.0)) <= 1.5


@pytest.mark.seconds
async def test_a_pause_of_this_process_is_not_taken_for_one_of_redis(server: RedisServer) -> None:
    store = RedisStore(Address.parse(server.url))
    await connected(store)
    for number in range(3):
        taking = asyncio.ensure_future(store.take(str(number), [Rate("k", 10, 1)]))
        await asyncio.sleep(0)
        time.sleep(0.4)  # noqa: ASYNC251 - that is the point
        assert (await taking).refused is None
    store.close()


# -- C35 (forgotten scripts, logins without rights, replicas and cluster nodes are in tests/unit/limits/test_redis.py)


async def test_c35_no_double_limit_across_a_boundary(server: RedisServer) -> None:
    """60 calls, and 60 more a thirtieth of the period later, at another gateway."""
    period, stores = 6.0, [RedisStore(Address.parse(server.url), 6.0, answer=PATIENT) for _ in range(2)]
    for store in stores:
        await connected(store)
    began, granted = time.monotonic(), []
    for number, store in enumerate(stores):
        takes = await asyncio.gather(*(store.take(f"{number}-{n}", [Rate("k", 60, 1)]) for n in range(60)))
        granted.append(sum(taken.refused is None for taken in takes))
        await asyncio.sleep(period / 30)
        store.close()
    assert granted[0] == 60
    assert granted[1] <= 60 * (time.monotonic() - began) / period + 1


async def test_c35_nothing_that_is_sent_depends_on_the_gateways_clock(server: RedisServer) -> None:
    """The same call, sent at two times, is the same to the last byte: Redis' clock is the only one."""
    demands: list[Demand] = [Rate("k", 60, 1), Slot("s", 5)]
    async with Delay(server.port) as proxy:
        store = RedisStore(Address.parse(f"redis://127.0.0.1:{proxy.port}"), answer=PATIENT)
        await connected(store)
        commands = []
        for _ in range(2):
            start = len(proxy.sent)
            await store.take("a", demands)
            commands.append(bytes(proxy.sent[start:]))
            await asyncio.sleep(0.02)
        store.close()
    assert commands[0] == commands[1] != b""
