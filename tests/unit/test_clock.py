"""Deadlines behind one timer, and background tasks that end with their owner."""

from __future__ import annotations

import asyncio

import pytest

from gateway import clock
from gateway.clock import Deadlines, Tasks

FINE = 0.005


async def test_a_result_before_its_deadline() -> None:
    deadlines = Deadlines(FINE)
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, 7)
    assert await deadlines.wait(future, clock.now() + 60) == 7


async def test_a_deadline_passes() -> None:
    deadlines = Deadlines(FINE)
    until = clock.now() + 0.02
    with pytest.raises(TimeoutError):
        await deadlines.wait(asyncio.get_running_loop().create_future(), until)
    assert clock.now() >= until


async def test_each_waiter_has_its_own_deadline() -> None:
    deadlines = Deadlines(FINE)
    loop = asyncio.get_running_loop()
    soon, late = loop.create_future(), loop.create_future()

    async def then() -> None:
        with pytest.raises(TimeoutError):
            await deadlines.wait(soon, clock.now())
        assert not late.done()
        late.set_result("late")

    answer, _ = await asyncio.gather(deadlines.wait(late, clock.now() + 60), then())
    assert answer == "late"


async def test_a_cancelled_wait_is_forgotten() -> None:
    deadlines = Deadlines(FINE)
    future = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(deadlines.wait(future, clock.now() + 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(TimeoutError):
        await deadlines.wait(asyncio.get_running_loop().create_future(), clock.now())


async def test_tasks_end_with_their_owner() -> None:
    tasks = Tasks()
    ended: list[str] = []

    async def work(name: str, forever: bool) -> None:
        try:
            if forever:
                await asyncio.Event().wait()
        finally:
            ended.append(name)

    short = tasks.spawn(work("short", False))
    await short
    long = tasks.spawn(work("long", True))
    await asyncio.sleep(0)
    assert ended == ["short"]
    await tasks.close()
    assert ended == ["short", "long"]
    assert long.cancelled()


async def test_a_task_that_fails_at_close_does_not_stop_the_others() -> None:
    tasks = Tasks()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("no") from None

    spawned = [tasks.spawn(stubborn()), tasks.spawn(asyncio.Event().wait())]
    await asyncio.sleep(0)
    await tasks.close()
    assert all(task.done() for task in spawned)
