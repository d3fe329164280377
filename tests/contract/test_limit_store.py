"""What every limit store does: one suite for all of them. Periods are so long or so short that the machine's speed
does not matter."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.limits import STORES
from gateway.limits.store import NANO, Demand, Purse, Rate, Settled, Slot, Store
from tests.contract.limit_stores import OPENERS
from tests.fakes.redis import RedisServer

LONG, SHORT = 1e6, 0.4
"""Seconds: nothing refills or expires during a test; it does so within a test."""


class OpenStore(Protocol):
    """What the fixture `store` is."""

    async def __call__(self, period: float = LONG, lease_seconds: float = LONG) -> Store: ...


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture(params=sorted(STORES))
async def store(request: pytest.FixtureRequest, server: RedisServer) -> AsyncIterator[OpenStore]:
    """Opens empty stores of each kind in turn."""
    async with AsyncExitStack() as stack:

        async def start(period: float = LONG, lease_seconds: float = LONG) -> Store:
            return await OPENERS[request.param](stack, server, period, lease_seconds)

        yield start


async def passed(seconds: float) -> None:
    """So much time, certainly: event loops count in whole milliseconds."""
    await asyncio.sleep(seconds + 0.005)


def requests(capacity: int, cost: int = 1, key: str = "requests") -> Rate:
    return Rate(key, capacity, cost)


def purse(capacity: int = 10, cost: int = 4, floor: int = 0, key: str = "purse", seconds: int = 1000) -> Purse:
    return Purse(key, capacity, cost, floor, seconds)


async def held(store: Store, lease: str, *demands: Demand) -> tuple[int, ...]:
    """Take what must be there; what was reserved."""
    taken = await store.take(lease, demands)
    assert taken.refused is None
    return taken.reserved


# -- rates


async def test_a_bucket_holds_one_period(store: OpenStore) -> None:
    limits = await store()
    lefts = [(await limits.take(str(i), [requests(3)])).left for i in range(3)]
    assert lefts == [(2,), (1,), (0,)]
    refusal = await limits.take("late", [requests(3)])
    assert (refusal.refused, refusal.left, refusal.reserved) == (0, (0,), ())
    assert refusal.wait == pytest.approx(LONG / 3, rel=1e-3)


@pytest.mark.parametrize("capacity", [1, 3, 7, 11, 600, 999_983, 2_000_000_000])
async def test_a_full_bucket_gives_all_it_holds(store: OpenStore, capacity: int) -> None:
    limits = await store(period=1e4)
    for part in (capacity // 3, capacity // 3, capacity - 2 * (capacity // 3)):
        await held(limits, "a", requests(capacity, part))
    assert (await limits.take("b", [requests(capacity, max(1, capacity // 1000))])).refused == 0


async def test_sums_of_fractions_lose_no_unit(store: OpenStore) -> None:
    limits = await store(period=1e4)
    for capacity in range(1, 60):
        key = f"of-{capacity}"
        granted = [(await limits.take("a", [requests(capacity, 1, key)])).refused for _ in range(capacity + 1)]
        assert granted == [None] * capacity + [0]


async def test_a_bucket_refills_continuously(store: OpenStore) -> None:
    limits = await store(period=SHORT)
    await held(limits, "a", requests(10, 10))
    refusal = await limits.take("b", [requests(10, 5)])
    assert refusal.refused == 0
    assert 0 < refusal.wait <= SHORT / 2
    await passed(refusal.wait)
    await held(limits, "b", requests(10, 5))


async def test_more_than_a_period_holds_can_never_be_had(store: OpenStore) -> None:
    limits = await store()
    refusal = await limits.take("a", [requests(5, 6)])
    assert (refusal.refused, refusal.wait, refusal.left) == (0, math.inf, (5,))


async def test_nothing_costs_nothing(store: OpenStore) -> None:
    limits = await store()
    await held(limits, "a", requests(2, 2))
    assert await held(limits, "b", requests(2, 0)) == (0,)


async def test_a_refusal_changes_nothing(store: OpenStore) -> None:
    limits = await store()
    every: list[Demand] = [requests(5), Slot("slots", 2), purse(), requests(1, key="tight")]
    await held(limits, "a", every[3])
    refusal = await limits.take("b", every)
    assert refusal.refused == 3
    assert refusal.left == (5, 2, 10, 0)
    for _ in range(20):
        assert (await limits.take("b", every)).wait <= refusal.wait
    assert await limits.peek(every) == (5, 2, 10, 0)


async def test_the_one_to_wait_for_longest_is_named(store: OpenStore) -> None:
    limits = await store()
    await held(limits, "a", requests(4, 4, "quick"), requests(1, 1, "slow"), Slot("slots", 1))
    every: list[Demand] = [Slot("slots", 1), requests(4, 1, "quick"), requests(1, 1, "slow")]
    assert (await limits.take("b", every)).refused == 2
    assert (await limits.take("b", every[:2])).refused == 1
    assert (await limits.take("b", [*every, requests(1, 2, "never")])).wait == math.inf


async def test_what_was_not_used_is_given_back_once(store: OpenStore) -> None:
    limits = await store()
    await held(limits, "a", requests(100, 80))
    limits.settle("a", [Settled(requests(100, 80), 80, 30)])
    assert await limits.peek([requests(100)]) == (70,)


async def test_what_was_used_beyond_is_a_debt(store: OpenStore) -> None:
    limits = await store()
    await held(limits, "a", requests(100, 10))
    limits.settle("a", [Settled(requests(100, 10), 10, 150)])
    assert await limits.peek([requests(100)]) == (0,)
    refusal = await limits.take("b", [requests(100, 0)])
    assert refusal.refused == 0
    assert refusal.wait == pytest.approx(LONG / 2, rel=1e-3)


async def test_more_than_full_is_not_possible(store: OpenStore) -> None:
    limits = await store(period=SHORT)
    await held(limits, "a", requests(10, 8))
    await passed(SHORT)
    limits.settle("a", [Settled(requests(10, 8), 8, 0)])
    assert await limits.peek([requests(10)]) == (10,)


async def test_another_capacity_keeps_the_share_that_is_left(store: OpenStore) -> None:
    limits = await store()
    await held(limits, "a", requests(100, 25))
    assert await limits.peek([requests(1000)]) == (750,)
    assert await limits.peek([requests(10)]) == (7,)


# -- slots


async def test_as_many_calls_as_slots(store: OpenStore) -> None:
    limits = await store()
    slots = Slot("slots", 2)
    assert [(await limits.take(lease, [slots])).left for lease in "ab"] == [(1,), (0,)]
    refusal = await limits.take("c", [slots])
    assert (refusal.refused, refusal.wait) == (0, 0)
    limits.settle("a", [Settled(slots, 1, 0)])
    limits.settle("a", [Settled(slots, 1, 0)])
    assert await limits.peek([slots]) == (1,)
    await held(limits, "c", slots)
    assert (await limits.take("d", [slots])).refused == 0


async def test_a_slot_that_nobody_renews_expires(store: OpenStore) -> None:
    limits = await store(lease_seconds=SHORT)
    slots = Slot("slots", 1)
    await held(limits, "killed", slots)
    await passed(SHORT)
    await held(limits, "next", slots)
    limits.settle("killed", [Settled(slots, 1, 0)])
    assert await limits.peek([slots]) == (0,)


@pytest.mark.seconds
async def test_a_renewed_lease_stays(store: OpenStore) -> None:
    limits = await store(lease_seconds=2 * SHORT)
    slots, money = Slot("slots", 1), purse(10, 10)
    await held(limits, "a", slots, money)
    for _ in range(4):
        await passed(SHORT / 2 + 0.1)
        limits.renew([("a", [slots, money])])
    assert await limits.peek([slots, money]) == (0, 0)
    limits.settle("a", [Settled(slots, 1, 0), Settled(money, 10, 3)])
    assert await limits.peek([slots, money]) == (1, 7)


async def test_a_lower_capacity_waits_for_the_calls_under_way(store: OpenStore) -> None:
    limits = await store()
    for lease in "abc":
        await held(limits, lease, Slot("slots", 3))
    assert await limits.peek([Slot("slots", 1)]) == (0,)
    assert (await limits.take("d", [Slot("slots", 3)])).refused == 0


# -- purses


async def test_the_last_call_gets_what_is_left(store: OpenStore) -> None:
    limits = await store()
    assert [await held(limits, lease, purse()) for lease in "abc"] == [(4,), (4,), (2,)]
    assert (await limits.take("d", [purse()])).refused == 0
    limits.settle("c", [Settled(purse(), 2, 9)])  # only the last one can overspend
    limits.settle("a", [Settled(purse(), 4, 1)])
    assert await limits.peek([purse()]) == (0,)
    limits.settle("b", [Settled(purse(), 4, 0)])
    assert (await limits.take("e", [purse()])).refused == 0  # 10 are spent
    assert await limits.peek([purse(15)]) == (5,)


async def test_money_is_exact_to_the_nano_dollar(store: OpenStore) -> None:
    limits = await store()
    million = purse(1_000_000 * NANO, 1)
    await held(limits, "a", purse(1_000_000 * NANO, 999_999 * NANO + 999_999_998))
    limits.settle("a", [Settled(million, 0, 999_999 * NANO + 999_999_998)])
    assert [await held(limits, lease, million) for lease in "bc"] == [(1,), (1,)]
    assert (await limits.take("d", [million])).refused == 0


async def test_billions_are_no_trouble(store: OpenStore) -> None:
    most = 10**9 * NANO
    limits = await store(lease_seconds=SHORT)
    await held(limits, "killed", purse(most, most // 2))
    await held(limits, "a", purse(most, most // 4))
    limits.settle("a", [Settled(purse(most), most // 4, 1000)])
    await passed(SHORT)
    await held(limits, "b", purse(most, most))
    limits.settle("b", [Settled(purse(most), most, most // 2)])
    (left,) = await limits.peek([purse(most)])
    assert left == pytest.approx(most // 2, rel=1e-12)


async def test_a_reservation_that_nobody_renews_expires(store: OpenStore) -> None:
    limits = await store(lease_seconds=SHORT)
    await held(limits, "killed", purse(10, 10))
    assert (await limits.take("b", [purse()])).refused == 0
    await passed(SHORT)
    await held(limits, "b", purse())
    limits.settle("killed", [Settled(purse(), 10, 2)])  # it was not killed, only late
    assert await limits.peek([purse()]) == (4,)


async def test_a_new_purse_begins_where_the_ledger_stands(store: OpenStore) -> None:
    limits = await store()
    assert (await limits.take("a", [purse(10, 4, floor=10)])).refused == 0
    assert await held(limits, "a", purse(10, 4, floor=5)) == (4,)
    limits.settle("a", [Settled(purse(10, 4, floor=5), 4, 4)])
    assert await limits.peek([purse(10, 4, floor=5)]) == (1,)
    assert await limits.peek([purse(10, 4, floor=9)]) == (1,)  # the same four
    assert await limits.peek([purse(10, 4, floor=10)]) == (0,)


@pytest.mark.seconds
async def test_a_purse_that_is_not_used_is_forgotten(store: OpenStore) -> None:
    limits = await store()
    short = purse(10, 10, seconds=1)
    await held(limits, "a", short)
    limits.settle("a", [Settled(short, 10, 10)])
    await passed(1)
    assert await limits.peek([short]) == (10,)


# -- all together

KEYS = ("a", "b")
RATES = st.builds(Rate, st.sampled_from(KEYS), st.just(10), st.integers(0, 12))
SLOTS = st.builds(Slot, st.sampled_from(KEYS), st.just(3))
PURSES = st.builds(Purse, st.sampled_from(KEYS), st.just(20), st.integers(0, 9), st.integers(0, 3), st.just(1000))
TAKES = st.lists(st.one_of(RATES, SLOTS, PURSES), max_size=6, unique_by=lambda d: (type(d), d.key))
STEPS = st.lists(st.tuples(TAKES, st.integers(0, 12), st.booleans()), max_size=25)


class Model:
    """A store in which no time passes, as plainly as it can be said."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}
        self.slots: dict[str, set[str]] = {}
        self.spent: dict[str, int] = {}
        self.reserved: dict[tuple[str, str], int] = {}

    def left(self, d: Demand) -> int:
        if isinstance(d, Rate):
            return d.capacity - self.used.get(d.key, 0)
        if isinstance(d, Slot):
            return d.capacity - len(self.slots.get(d.key, ()))
        reserved = sum(amount for (key, _), amount in self.reserved.items() if key == d.key)
        return d.capacity - max(self.spent.get(d.key, 0), d.floor) - reserved

    def fits(self, d: Demand) -> bool:
        return d.cost <= self.left(d) if isinstance(d, Rate) else self.left(d) > 0

    def take(self, lease: str, d: Demand) -> int:
        if isinstance(d, Rate):
            self.used[d.key] = self.used.get(d.key, 0) + d.cost
            return d.cost
        if isinstance(d, Slot):
            self.slots.setdefault(d.key, set()).add(lease)
            return 1
        amount = min(d.cost, self.left(d))
        self.spent.setdefault(d.key, d.floor)
        self.reserved[d.key, lease] = amount
        return amount

    def settle(self, lease: str, s: Settled) -> None:
        if isinstance(s.demand, Rate):
            self.used[s.demand.key] = max(0, self.used.get(s.demand.key, 0) + s.used - s.reserved)
        elif isinstance(s.demand, Slot):
            self.slots.get(s.demand.key, set()).discard(lease)
        else:
            self.reserved.pop((s.demand.key, lease), None)
            self.spent[s.demand.key] = self.spent.get(s.demand.key, s.demand.floor) + s.used


@pytest.mark.seconds
@given(steps=STEPS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_like_the_model(store: OpenStore, steps: list[tuple[list[Demand], int, bool]]) -> None:
    limits, model = await store(period=1e5), Model()
    for number, (demands, used, settle) in enumerate(steps):
        lease = str(number)
        taken = await limits.take(lease, demands)
        assert (taken.refused is None) == all(map(model.fits, demands))
        if taken.refused is None:
            assert taken.reserved == tuple(model.take(lease, d) for d in demands)
            settled = [Settled(d, r, used) for d, r in zip(demands, taken.reserved, strict=True)]
            for s in settled if settle else ():
                model.settle(lease, s)
            if settle:
                limits.settle(lease, settled)
        assert await limits.peek(demands) == tuple(max(0, model.left(d)) for d in demands)
