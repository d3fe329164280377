"""Redis, and what holds while it is in trouble: a breaker that opens at the first fault, beside which nobody waits.

up --(late, refused, lost, nonsense)--> down: `share`, `open` or `closed` --(a probe beside the calls works)--> up
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from gateway import clock
from gateway.clock import Tasks
from gateway.limits.memory import MemoryStore
from gateway.limits.redis import RedisStore
from gateway.limits.share import Share
from gateway.limits.store import Demand, Purse, Settled, Slot, StoreDown, Taken

_MOST = 20_000
"""Leases, and purses, that are remembered."""

OnFailure = Literal["share", "open", "closed"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the guard does what it does beside the calls, in seconds."""

    beat: float = 2.0
    """Between the heartbeats of a replica."""
    alive: float = 7.0
    """For so long it counts as alive after the last one."""
    probe: float = 1.0
    """Between attempts to find Redis working again."""


class GuardedStore:
    """See `store.Store`. `start` first, `close` at the end. A lease is settled where it was taken.

    `replicas`: how many there are at least, until heartbeats tell. `up` is told 1 or 0 at each change."""

    def __init__(
        self,
        redis: RedisStore,
        memory: MemoryStore,
        on_failure: OnFailure,
        log: FilteringBoundLogger,
        up: Callable[[int], None] = lambda up: None,
        replicas: int = 1,
        pace: Pace | None = None,
    ) -> None:
        self.on_failure: OnFailure = on_failure
        """A reload may change it."""
        self._redis = redis
        self._memory = memory
        self._log = log
        self._announce = up
        self._replicas = replicas
        self._pace = pace or Pace()
        self._name = os.urandom(8).hex()
        self._up: bool | None = None
        self._why = "not connected yet"
        self._changed_at = clock.now()
        self._outages = 0
        self._spent: dict[str, int] = {}
        """Key of a purse -> nano-dollars spent or reserved, as last seen in Redis."""
        self._share = Share(replicas, self._spent, 0)
        self._local: dict[str, dict[str, Demand]] = {}
        """Lease -> key -> what was taken here."""
        self._tasks = Tasks()
        self._wake = asyncio.Event()

    @property
    def up(self) -> bool:
        """Redis is in use."""
        return self._up is True

    @property
    def replicas(self) -> int:
        """The last known number."""
        return self._replicas

    async def start(self) -> None:
        """Connect, if possible within a second; where not, begin without Redis and look for it beside the calls."""
        self._redis.down = self._went_down
        await self._look()
        self._tasks.spawn(self._watch())

    async def close(self) -> None:
        """Say that this replica ends, and end the connection."""
        await self._tasks.close()
        if self._up:
            self._redis.leave(self._name)
            await self._redis.finish()
        self._redis.close()

    # -- what a store does

    async def take(self, lease: str, demands: Sequence[Demand]) -> Taken:
        """See `store.Store`. Raises StoreDown only where Redis is down and the configuration says `closed`."""
        if self._up:
            try:
                taken = await self._redis.take(lease, demands)
            except StoreDown as down:
                self._went_down(str(down))
            else:
                self._notice(demands, taken)
                return taken
        return self._take_here(lease, demands)

    async def get(self, key: bytes) -> bytes | None:
        """What another process has kept by `put`; None as well while Redis is down."""
        if not self._up:
            return None
        try:
            return await self._redis.get(key)
        except StoreDown as down:
            self._went_down(str(down))
            return None

    def put(self, key: bytes, value: bytes, seconds: int) -> None:
        """Keep something for all processes, if Redis is up."""
        if self._up:
            self._redis.put(key, value, seconds)

    async def peek(self, demands: Sequence[Demand]) -> tuple[int, ...]:
        """See `store.Store`."""
        if self._up:
            try:
                return await self._redis.peek(demands)
            except StoreDown as down:
                self._went_down(str(down))
        if self.on_failure == "closed":
            raise StoreDown(self._why)
        if self.on_failure == "open":
            return tuple([d.capacity for d in demands])
        return await self._memory.peek([self._share.of(d) for d in demands])

    def settle(self, lease: str, settled: Sequence[Settled]) -> None:
        """See `store.Store`."""
        here = self._local.pop(lease, None)
        if here is None:
            self._redis.settle(lease, settled)
            return
        mine = [s for s in settled if s.demand.key in here]
        self._memory.settle(lease, [replace(s, demand=here[s.demand.key]) for s in mine])
        self._redis.charge([s for s in mine if isinstance(s.demand, Purse)])
        self._redis.settle(lease, [s for s in settled if s.demand.key not in here])

    def renew(self, leases: Iterable[tuple[str, Sequence[Demand]]]) -> None:
        """See `store.Store`."""
        there = []
        for lease, demands in leases:
            here = self._local.get(lease, {})
            self._memory.renew([(lease, [here[d.key] for d in demands if d.key in here])])
            there.append((lease, [d for d in demands if d.key not in here]))
        if self._up:
            self._redis.renew(there)

    # -- without Redis

    def _take_here(self, lease: str, demands: Sequence[Demand]) -> Taken:
        if self.on_failure == "closed":
            raise StoreDown(self._why)
        if self.on_failure == "open":
            mine, taken = list(demands), Taken(None, 0.0, tuple([d.capacity for d in demands]), (0,) * len(demands))
        else:
            mine = [self._share.of(d) for d in demands]
            taken = self._memory.take_now(lease, mine)
        if taken.refused is None:
            here = self._local.setdefault(lease, {})
            here.update(zip([d.key for d in demands], mine, strict=True))
            if len(self._local) > _MOST:
                del self._local[next(iter(self._local))]
        return taken

    def _hand_over(self) -> None:
        """From now on the slots of calls that began here count in Redis."""
        moved = []
        for lease, here in self._local.items():
            slots = {key: d for key, d in here.items() if isinstance(d, Slot)}
            self._memory.settle(lease, [Settled(d, 1, 0) for d in slots.values()])
            moved.append((lease, tuple(slots.values())))
            for key in slots:
                del here[key]
        self._redis.renew(moved)

    def _notice(self, demands: Sequence[Demand], taken: Taken) -> None:
        for d, left in zip(demands, taken.left, strict=True):
            if isinstance(d, Purse):
                self._spent.pop(d.key, None)
                self._spent[d.key] = d.capacity - left
                if len(self._spent) > _MOST:
                    del self._spent[next(iter(self._spent))]

    # -- whether Redis works

    async def _watch(self) -> None:
        while True:
            pause = self._pace.beat if self._up else self._pace.probe
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.8, 1.2)):
                    await self._wake.wait()
            self._wake.clear()
            await self._look()

    async def _look(self) -> None:
        """A heartbeat; while Redis is down, a real take first."""
        try:
            if not self._up:
                await self._redis.connect()
            living = await self._redis.beat(self._name, self._pace.alive)
        except StoreDown as down:
            self._went_down(str(down))
            return
        self._came_back()
        # After a loss the others need some time until each has said that it lives.
        settled = clock.now() - self._changed_at > self._pace.alive
        self._replicas = living if settled else max(living, self._replicas)

    def _went_down(self, why: str) -> None:
        if self._up is False:
            return
        if clock.now() - self._changed_at > self._pace.probe:
            self._wake.set()  # one that keeps failing is not asked at once
        self._up, self._why, self._changed_at = False, why, clock.now()
        self._outages += 1
        self._share = Share(self._replicas, self._spent, self._outages)
        self._announce(0)
        self._log.warning(
            "the limit store is down",
            store=str(self._redis.address),
            reason=why,
            on_failure=self.on_failure,
            replicas=self._replicas,
        )

    def _came_back(self) -> None:
        if self._up:
            return
        seconds, first = clock.now() - self._changed_at, self._up is None
        self._up, self._changed_at = True, clock.now()
        self._hand_over()
        self._announce(1)
        words = {} if first else {"after_seconds": round(seconds, 1)}
        self._log.info("the limit store is up", store=str(self._redis.address), **words)
