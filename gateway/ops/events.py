"""`/admin/state` and `/admin/events`: the snapshot once, and every two seconds. One producer serves all listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from gateway import clock
from gateway.clock import Tasks
from gateway.errors import GatewayError

EVERY_SECONDS = 2.0
MOST_LISTENERS = 32

Drop = Callable[[MutableMapping[str, Any]], None]
"""Closes the connection behind an ASGI scope at once."""


class Listener:
    """One page that is open."""

    def __init__(self, welcome: Callable[[], None], drop: Callable[[], None]) -> None:
        """`welcome` raises GatewayError once it is not let in any more; `drop` closes its connection."""
        self.welcome, self.drop = welcome, drop
        self.box: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        """The event to send next; None: the end."""


class Broadcast:
    """Makes snapshots while somebody listens. Whoever has not taken one when the next is there is dropped: nothing is
    kept for slow listeners."""

    def __init__(
        self,
        snapshot: Callable[[], Awaitable[Any]],
        tasks: Tasks,
        every: float = EVERY_SECONDS,
        most: int = MOST_LISTENERS,
    ) -> None:
        """`every`: seconds between two snapshots. `most`: listeners at the same time."""
        self.snapshot = snapshot
        self._tasks, self._every, self._most = tasks, every, most
        self._listeners: set[Listener] = set()
        self._producing: asyncio.Task[None] | None = None
        self._last = b""
        self._last_at = 0.0
        self._ended = False

    def __len__(self) -> int:
        return len(self._listeners)

    def join(self, listener: Listener) -> None:
        """Have it told from now on. Raises GatewayError when there are too many, and while the gateway shuts down."""
        if self._ended:
            raise GatewayError("shutting_down", "The gateway is shutting down.", retry_after=1)
        if len(self._listeners) >= self._most:
            text = f"{self._most} pages are being kept up to date already, which is the most."
            raise GatewayError("rate_limit_exceeded", text, retry_after=30)
        self._listeners.add(listener)
        if self._last and clock.now() - self._last_at < self._every:
            listener.box.put_nowait(self._last)
        if self._producing is None:
            self._producing = self._tasks.spawn(self._produce())

    async def events(self, listener: Listener) -> AsyncIterator[bytes]:
        """What to send to a listener that has joined, until its end."""
        try:
            while (event := await listener.box.get()) is not None:
                yield event
        finally:
            self._listeners.discard(listener)

    def end(self) -> None:
        """No event comes any more."""
        self._ended = True
        for listener in self._listeners:
            _put(listener, None)

    async def _produce(self) -> None:
        try:
            while self._listeners and not self._ended:
                document = await self.snapshot()
                self._last, self._last_at = event("state", document), clock.now()
                for listener in list(self._listeners):
                    self._tell(listener, self._last)
                await asyncio.sleep(self._every)
        finally:
            self._producing = None
            for listener in self._listeners:
                _put(listener, None)

    def _tell(self, listener: Listener, data: bytes) -> None:
        try:
            listener.welcome()
        except GatewayError:
            _put(listener, None)
            return
        if listener.box.full():
            self._listeners.discard(listener)
            listener.drop()
        else:
            listener.box.put_nowait(data)


def _put(listener: Listener, data: bytes | None) -> None:
    """In place of whatever it has not taken yet."""
    while not listener.box.empty():
        listener.box.get_nowait()
    listener.box.put_nowait(data)


def event(name: str, document: Any) -> bytes:
    """A server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(document))


def mount(admin: APIRouter, broadcast: Broadcast, welcome: Callable[[Request], None], drop: Drop) -> None:
    """Add the routes to the guarded router. `welcome` is the guard itself, asked again before each event."""

    @admin.get("/state", summary="One snapshot of everything the operations page shows")
    async def state() -> Response:
        body = msgspec.json.encode(await broadcast.snapshot())
        return Response(body, headers={"cache-control": "no-store"}, media_type="application/json")

    @admin.get("/events", summary="The snapshot every two seconds, as server-sent events", include_in_schema=False)
    async def events(request: Request) -> StreamingResponse:
        listener = Listener(lambda: welcome(request), lambda: drop(request.scope))
        broadcast.join(listener)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(broadcast.events(listener), headers=headers, media_type="text/event-stream")
