"""Limits in this process only. The same semantics as `redis.py`, with nothing to wait for inside.

Tables are kept in the order of age by OrderedDict, not dict: whose front is slow to find after many entries have moved
from there to the end.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from gateway import clock
from gateway.limits.store import Demand, Purse, Rate, Settled, Slot, Taken

SLACK = 1e-6
"""Seconds: sums of fractions of a period are not exact."""

V = TypeVar("V")
_D = TypeVar("_D", contravariant=True)


class _Kind(Protocol[_D]):
    """What the store does with one kind of demand."""

    def wait(self, demand: _D, now: float) -> float | None:
        """Seconds until it could be met; None: it can be."""

    def take(self, lease: str, demand: _D, now: float) -> int:
        """Reserve what `wait` found to be there; how much that was."""

    def left(self, demand: _D, now: float) -> int: ...

    def settle(self, lease: str, demand: _D, reserved: int, used: int, now: float) -> None: ...

    def renew(self, lease: str, demand: _D, now: float) -> None: ...


class Buckets:
    """A bucket is one number: the time at which it will be full. What is missing is the share of a period until then,
    so the number keeps its meaning when a reload changes the capacity."""

    def __init__(self, period: float, keys: int) -> None:
        self._period = period
        self._keys = keys
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """In the order of their last change."""

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, demand: Rate, now: float) -> float | None:
        if demand.cost > demand.capacity:
            return math.inf
        wait = self._missing(demand, now) + demand.cost * self._period / demand.capacity - self._period
        return wait if wait > SLACK else None

    def take(self, lease: str, demand: Rate, now: float) -> int:
        self._move(demand, demand.cost, now)
        return demand.cost

    def left(self, demand: Rate, now: float) -> int:
        room = self._period - self._missing(demand, now) + SLACK
        return min(demand.capacity, max(0, math.floor(room * demand.capacity / self._period)))

    def settle(self, lease: str, demand: Rate, reserved: int, used: int, now: float) -> None:
        self._move(demand, used - reserved, now)

    def renew(self, lease: str, demand: Rate, now: float) -> None:
        """A bucket forgets by itself."""

    def _missing(self, demand: Rate, now: float) -> float:
        return max(0.0, self._full_at.get(demand.key, now) - now)

    def _move(self, demand: Rate, units: int, now: float) -> None:
        missing = self._missing(demand, now) + units * self._period / demand.capacity
        self._full_at.pop(demand.key, None)
        if missing > 0:
            _bound(self._full_at, self._keys, lambda full_at: full_at <= now)
            self._full_at[demand.key] = now + missing


class Slots:
    """Leases that hold a slot, each with the time at which it expires."""

    def __init__(self, lease_seconds: float) -> None:
        self._seconds = lease_seconds
        self._held: dict[str, OrderedDict[str, float]] = {}
        """In the order of their expiry."""

    def wait(self, demand: Slot, now: float) -> float | None:
        return None if self.left(demand, now) > 0 else 0.0

    def take(self, lease: str, demand: Slot, now: float) -> int:
        self.renew(lease, demand, now)
        return 1

    def left(self, demand: Slot, now: float) -> int:
        held = self._held.get(demand.key)
        if held is None:
            return demand.capacity
        _expire(held, lambda until: until <= now)
        if not held:
            del self._held[demand.key]
        return max(0, demand.capacity - len(held))

    def settle(self, lease: str, demand: Slot, reserved: int, used: int, now: float) -> None:
        held = self._held.get(demand.key)
        if held is not None:
            held.pop(lease, None)
            if not held:
                del self._held[demand.key]

    def renew(self, lease: str, demand: Slot, now: float) -> None:
        held = self._held.setdefault(demand.key, OrderedDict())
        held.pop(lease, None)
        held[lease] = now + self._seconds


@dataclass(slots=True)
class _Money:
    """One purse."""

    spent: int
    until: float
    reserved: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)
    """Lease -> (expiry, nano-dollars), in the order of their expiry."""


class Purses:
    """What is spent, and what calls under way have reserved."""

    def __init__(self, lease_seconds: float, keys: int) -> None:
        self._seconds = lease_seconds
        self._keys = keys
        self._purses: OrderedDict[str, _Money] = OrderedDict()
        """In the order of their last change."""

    def __len__(self) -> int:
        return len(self._purses)

    def wait(self, demand: Purse, now: float) -> float | None:
        return None if self.left(demand, now) > 0 else 0.0

    def take(self, lease: str, demand: Purse, now: float) -> int:
        reserved = min(demand.cost, self.left(demand, now))
        self._changed(demand, now).reserved[lease] = (now + self._seconds, reserved)
        return reserved

    def left(self, demand: Purse, now: float) -> int:
        purse = self._purses.get(demand.key)
        if purse is None or purse.until <= now:
            return max(0, demand.capacity - demand.floor)
        _expire(purse.reserved, lambda entry: entry[0] <= now)
        reserved = sum(amount for _, amount in purse.reserved.values())
        return max(0, demand.capacity - max(purse.spent, demand.floor) - reserved)

    def settle(self, lease: str, demand: Purse, reserved: int, used: int, now: float) -> None:
        purse = self._changed(demand, now)
        purse.reserved.pop(lease, None)
        purse.spent += used

    def renew(self, lease: str, demand: Purse, now: float) -> None:
        purse = self._purses.get(demand.key)
        entry = purse.reserved.pop(lease, None) if purse is not None else None
        if purse is not None and entry is not None:
            purse.reserved[lease] = (now + self._seconds, entry[1])

    def _changed(self, demand: Purse, now: float) -> _Money:
        purse = self._purses.pop(demand.key, None)
        if purse is None or purse.until <= now:
            purse = _Money(demand.floor, 0.0)
            _bound(self._purses, self._keys, lambda other: other.until <= now)
        purse.until = now + demand.seconds
        self._purses[demand.key] = purse
        return purse


class MemoryStore:
    """See `store.Store`. `keys`: how many buckets and how many purses are kept at most; the oldest go first."""

    def __init__(
        self,
        period: float = 60.0,
        lease_seconds: float = 30.0,
        keys: int = 100_000,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._now = now
        self._kinds: Mapping[type[Demand], _Kind[Any]] = {
            Rate: Buckets(period, keys),
            Slot: Slots(lease_seconds),
            Purse: Purses(lease_seconds, keys),
        }

    async def take(self, lease: str, demands: Sequence[Demand]) -> Taken:
        """See `store.Store`."""
        return self.take_now(lease, demands)

    def take_now(self, lease: str, demands: Sequence[Demand]) -> Taken:
        """`take` without anything to wait for."""
        now = self._now()
        waits = [self._kinds[type(d)].wait(d, now) for d in demands]
        longest = max((wait for wait in waits if wait is not None), default=None)
        if longest is not None:
            return Taken(waits.index(longest), longest, self._left(demands, now))
        reserved = tuple([self._kinds[type(d)].take(lease, d, now) for d in demands])
        return Taken(None, 0.0, self._left(demands, now), reserved)

    def settle(self, lease: str, settled: Sequence[Settled]) -> None:
        """See `store.Store`."""
        now = self._now()
        for s in settled:
            self._kinds[type(s.demand)].settle(lease, s.demand, s.reserved, s.used, now)

    def renew(self, leases: Iterable[tuple[str, Sequence[Demand]]]) -> None:
        """See `store.Store`."""
        now = self._now()
        for lease, demands in leases:
            for d in demands:
                self._kinds[type(d)].renew(lease, d, now)

    async def peek(self, demands: Sequence[Demand]) -> tuple[int, ...]:
        """See `store.Store`."""
        return self._left(demands, self._now())

    def _left(self, demands: Sequence[Demand], now: float) -> tuple[int, ...]:
        return tuple([self._kinds[type(d)].left(d, now) for d in demands])


def _expire(entries: OrderedDict[str, V], gone: Callable[[V], bool]) -> None:
    """Drop from the front, where the oldest are, what is gone."""
    while entries and gone(entries[first := next(iter(entries))]):
        del entries[first]


def _bound(entries: OrderedDict[str, V], most: int, gone: Callable[[V], bool]) -> None:
    """Make room for one more."""
    _expire(entries, gone)
    if len(entries) >= most:
        del entries[next(iter(entries))]
