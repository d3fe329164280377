"""Snapshots for everybody who listens: one producer, bounded, and nobody slow holds anything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.clock import Tasks
from gateway.errors import GatewayError
from gateway.ops.events import Broadcast, Listener, mount
from tests.unit.ops.asking import Site, Stand


class World:
    """A broadcast, and what becomes of its listeners."""

    def __init__(self, tasks: Tasks, **options: Any) -> None:
        self.made = 0
        self.dropped: list[str] = []
        self.unwelcome: set[str] = set()
        self.broadcast = Broadcast(self.snapshot, tasks, **options)

    async def snapshot(self) -> dict[str, int]:
        self.made += 1
        return {"number": self.made}

    def listener(self, name: str = "a") -> Listener:
        def welcome() -> None:
            if name in self.unwelcome:
                raise GatewayError("invalid_api_key", "no")

        return Listener(welcome, lambda: self.dropped.append(name))

    def join(self, name: str = "a") -> AsyncIterator[bytes]:
        listener = self.listener(name)
        self.broadcast.join(listener)
        return self.broadcast.events(listener)


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    await tasks.close()


@pytest.fixture
def world(tasks: Tasks) -> World:
    return World(tasks, every=0.01)


def number(event: bytes) -> int:
    first, data, *end = event.split(b"\n")
    assert (first, end) == (b"event: state", [b"", b""])
    document: dict[str, int] = json.loads(data.removeprefix(b"data: "))
    return document["number"]


async def test_every_listener_is_told_the_same(world: World) -> None:
    async with asyncio.timeout(15):
        one, other = world.join(), world.join("b")
        first = [number(await anext(one)), number(await anext(other))]
        second = [number(await anext(one)), number(await anext(other))]
    assert first == [1, 1]
    assert second == [2, 2]
    world.broadcast.end()


async def test_nothing_is_made_for_nobody(world: World, tasks: Tasks) -> None:
    async with asyncio.timeout(15):
        events = world.join()
        await anext(events)
        await events.aclose()  # type: ignore[attr-defined]
        while tasks._running:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert world.made == 1


async def test_whoever_comes_between_two_is_told_the_last(tasks: Tasks) -> None:
    world = World(tasks, every=1000.0)
    async with asyncio.timeout(15):
        assert number(await anext(world.join())) == 1
        assert number(await anext(world.join("b"))) == 1
    assert world.made == 1


async def test_slow_ones_are_dropped(world: World) -> None:
    async with asyncio.timeout(15):
        slow, quick = world.listener("slow"), world.join("quick")
        world.broadcast.join(slow)
        for _ in range(3):
            await anext(quick)
    assert world.dropped == ["slow"]
    assert len(world.broadcast) == 1
    assert slow.box.qsize() == 1
    world.broadcast.end()


async def test_whoever_is_no_longer_let_in_hears_the_end(world: World) -> None:
    async with asyncio.timeout(15):
        events = world.join("a")
        await anext(events)
        world.unwelcome.add("a")
        assert [number(event) async for event in events][2:] == []
    assert len(world.broadcast) == 0


async def test_too_many(tasks: Tasks) -> None:
    world = World(tasks, every=1000.0, most=2)
    world.join("a")
    world.join("b")
    with pytest.raises(GatewayError) as refused:
        world.join("c")
    assert refused.value.code == "rate_limit_exceeded"


async def test_the_end(world: World) -> None:
    async with asyncio.timeout(15):
        events = world.join()
        await anext(events)
        world.broadcast.end()
        assert [event async for event in events] == []
    with pytest.raises(GatewayError) as refused:
        world.join()
    assert refused.value.code == "shutting_down"


async def test_a_producer_that_fails_leaves_nobody_waiting(world: World, tasks: Tasks) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    world.broadcast.snapshot = broken
    async with asyncio.timeout(15):
        events = world.join()
        producing = world.broadcast._producing
        assert producing is not None
        assert [event async for event in events] == []
        with pytest.raises(ZeroDivisionError):
            await producing


async def test_one_snapshot(world: World) -> None:
    site = Site(Stand(), lambda admin: mount(admin, world.broadcast, lambda request: None, lambda scope: None))
    answer = await site.ask("GET", "/admin/state")
    assert (answer.status_code, answer.json()) == (200, {"number": 1})
    assert answer.headers["cache-control"] == "no-store"
    for path in ("state", "events"):
        assert (await site.ask("GET", f"/admin/{path}", x_api_key="no")).status_code == 401
