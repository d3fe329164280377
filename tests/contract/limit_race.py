"""Processes that race for one limit: `race(...)` starts them and returns what each client saw."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

from gateway.config.redis_url import Address
from gateway.limits.redis import RedisStore
from gateway.limits.store import Rate, Slot
from tests.contract.limit_stores import PATIENT, connected


@dataclass(frozen=True)
class Race:
    """What every process does: `clients` take one unit after the other until `seconds` are over and they are refused
    (or one unit each, if `seconds` is 0)."""

    url: str
    capacity: int
    period: float
    clients: int
    seconds: float


@dataclass(frozen=True)
class Seen:
    """What one client saw. Times on the machine's monotonic clock, which all its processes share."""

    granted: int
    waits: tuple[float, ...]
    """Of the refused ones."""
    first_sent: float
    first_answered: float
    last_sent: float
    last_answered: float


def race(what: Race, processes: int) -> list[Seen]:
    """Run it; what each client of each process saw."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    pipes, running = [], []
    for _ in range(processes):
        mine, theirs = context.Pipe(duplex=False)
        running.append(context.Process(target=_process, args=(what, barrier, theirs)))
        pipes.append(mine)
        running[-1].start()
        theirs.close()
    seen = [one for pipe in pipes for one in pipe.recv()]
    for process, pipe in zip(running, pipes, strict=True):
        process.join()
        process.close()
        pipe.close()
    return seen


def _process(what: Race, barrier: Barrier, results: Connection) -> None:
    results.send(asyncio.run(_clients(what, barrier)))


async def _clients(what: Race, barrier: Barrier) -> list[Seen]:
    store = RedisStore(Address.parse(what.url), what.period, answer=PATIENT)
    await connected(store)
    barrier.wait()
    try:
        return await asyncio.gather(*(_client(what, store, str(number)) for number in range(what.clients)))
    finally:
        store.close()


async def _client(what: Race, store: RedisStore, name: str) -> Seen:
    granted, waits, began, first_answered = 0, [], time.monotonic(), 0.0
    while True:
        sent = time.monotonic()
        taken = await store.take(f"{os.getpid()}-{name}-{granted}", [Rate("race", what.capacity, 1)])
        answered = time.monotonic()
        first_answered = first_answered or answered
        granted += taken.refused is None
        if taken.refused is not None:
            waits.append(taken.wait)
        if sent - began >= what.seconds and (taken.refused is not None or not what.seconds):
            return Seen(granted, tuple(waits), began, first_answered, sent, answered)
        if taken.refused is not None:
            await asyncio.sleep(0.005)


def with_a_slot(url: str, slot: Slot, lease_seconds: float, then: Callable[[], Any]) -> None:
    """A process of its own takes the slot and keeps renewing it; `then` runs beside it; it ends by SIGKILL."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_holder, args=(url, slot, lease_seconds, theirs))
    process.start()
    try:
        assert mine.recv() == "taken"
        then()
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        process.close()
        for pipe in (mine, theirs):
            pipe.close()


def _holder(url: str, slot: Slot, lease_seconds: float, results: Connection) -> None:
    async def hold() -> None:
        store = RedisStore(Address.parse(url), 60.0, lease_seconds, answer=PATIENT)
        await connected(store)
        assert (await store.take("held", [slot])).refused is None
        results.send("taken")
        while True:
            await asyncio.sleep(lease_seconds / 4)
            store.renew([("held", [slot])])

    asyncio.run(hold())
