"""What the limiter asks of the place where limits are kept; `memory.py` and `redis.py` are two such places.

A call's demands are taken all together or not at all, and each is settled exactly once by its lease and key. A lease
may take several times, never twice from one key; a key belongs to one kind of demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

NANO = 1_000_000_000
"""Money is kept in whole nano-dollars: exact in the 53 bits of Redis' numbers up to nine million dollars."""


class Rate(Struct, frozen=True, gc=False):
    """Units (requests or tokens) from a bucket that holds one period's limit and refills continuously."""

    key: str
    capacity: int
    """Units of one period, at least 1."""
    cost: int
    """Units wanted now; more than `capacity` can never be had."""


class Slot(Struct, frozen=True, gc=False):
    """One of `capacity` calls at the same time; freed by the settlement or when the lease expires."""

    key: str
    capacity: int


class Purse(Struct, frozen=True, gc=False):
    """Money of one budget period, in nano-dollars. As long as anything is left, up to `cost` of it is reserved; so of
    all calls in flight only the last one can spend more than was left."""

    key: str
    """With the period in it: each period has a purse of its own."""
    capacity: int
    cost: int
    floor: int
    """What is known to be spent (from the ledger): where a new purse begins, and what counts wherever the store knows
    less, as after a loss."""
    seconds: int
    """How long the store has to keep it."""


Demand = Rate | Slot | Purse


class Taken(Struct, frozen=True, gc=False):
    """The answer to a take."""

    refused: int | None
    """Position of the demand that has to be waited for longest, the first of several; None: all are reserved."""
    wait: float
    """Seconds until it could be met; 0 where nobody knows (slots, purses), inf: never."""
    left: tuple[int, ...]
    """For each demand what is left after this answer: units, slots, nano-dollars."""
    reserved: tuple[int, ...] = ()
    """For each demand what was taken of it."""


class Settled(Struct, frozen=True, gc=False):
    """What became of one demand of a take."""

    demand: Demand
    reserved: int
    used: int
    """Of a Rate or a Purse; a Slot is just freed."""


class Store(Protocol):
    """Where limits are kept. Its period (a minute) and the lease time are parameters, so that tests need no minutes."""

    async def take(self, lease: str, demands: Sequence[Demand]) -> Taken:
        """Reserve all of them or none. A refusal changes nothing. Raises StoreDown.

        If the caller is cancelled while it waits, what may have been reserved is given back."""

    def settle(self, lease: str, settled: Sequence[Settled]) -> None:
        """Give back what was reserved and not used, charge what was used beyond it, free the slots. Sent, not waited
        for. Settling the same lease twice frees its slots once. What was taken from a purse no longer counts as
        reserved, whatever `reserved` says."""

    def renew(self, leases: Iterable[tuple[str, Sequence[Demand]]]) -> None:
        """These calls are still running: their slots and reservations in purses stay for another lease time."""

    async def peek(self, demands: Sequence[Demand]) -> tuple[int, ...]:
        """What is left of each, nothing taken. Raises StoreDown."""


class StoreDown(Exception):
    """The store did not answer in time, or not with sense."""
