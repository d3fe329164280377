"""Time: one timer for all deadlines, and background tasks that somebody owns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

now = time.monotonic
"""Seconds on the clock that every deadline in the gateway is given in."""


Waiter = tuple[float, asyncio.Future[Any]]
"""A deadline, and who waits for it."""


class Deadlines:
    """Deadlines for many waiters behind one timer.

    A wait costs a set insertion instead of a timer of its own; in return it may end up to `resolution` seconds late.
    """

    def __init__(self, resolution: float = 0.1) -> None:
        self._resolution = resolution
        self._waiting: set[Waiter] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, future: asyncio.Future[T], deadline: float) -> T:
        """The future's result; TimeoutError once `deadline` (by `now`) has passed."""
        waiter = self.add(future, deadline)
        try:
            return await future
        finally:
            self.discard(waiter)

    def add(self, future: asyncio.Future[Any], deadline: float) -> Waiter:
        """The same for whoever awaits the future himself, and calls `discard` afterwards."""
        waiter = (deadline, future)
        self._waiting.add(waiter)
        if self._timer is None:
            self._timer = future.get_loop().call_later(self._resolution, self._tick)
        return waiter

    def discard(self, waiter: Waiter) -> None:
        """Nobody waits any more."""
        self._waiting.discard(waiter)

    def _tick(self) -> None:
        self._timer = None
        moment = now()
        for deadline, future in list(self._waiting):
            if deadline <= moment and not future.done():
                future.set_exception(TimeoutError())
        if self._waiting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._resolution, self._tick)


class Tasks:
    """Background tasks of one owner: referenced until done, all cancelled at close."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def close(self) -> None:
        """Cancel what still runs and wait for it."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
