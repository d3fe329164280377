"""One request and its answer as a `call.Exchange`: all that does not depend on how the bytes come and go."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from gateway import clock
from gateway.call import Call, Endpoint, Headers
from gateway.clock import Tasks
from gateway.edge.pulse import Patience, Pulse
from gateway.edge.render import call_headers, error_body, error_event, error_headers, refused_by, request_id
from gateway.errors import GatewayError

_JSON = re.compile(rb"\s*application/(?:[\w.+-]*\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)
_PING = b": ping\n\n"
_OWN_MOMENT = 0.001
"""Seconds: what a read or a write may take without anybody being waited for."""
_DRAIN_BYTES = 64 * 1024 * 1024
_DRAIN_SECONDS = 5.0


class Exchange(ABC):
    """See `call.Exchange`. The adapters (`asgi.py`, `native.py`) take body parts and send bytes."""

    def __init__(self, endpoint: Endpoint, headers: dict[bytes, bytes], peer: str, pulse: Pulse, tasks: Tasks) -> None:
        self.endpoint = endpoint
        self.headers = headers
        self.peer = peer
        self.left = False
        self._pulse = pulse
        self._tasks = tasks
        self._task: asyncio.Task[Any] | None = None
        self._call: Call | None = None
        self._started = False
        self._waiting_since: float | None = None
        """Since when a read or a write is pending."""
        self._reading = False
        self._late = False
        """The body took too long."""
        self._sent_at = 0.0

    @abstractmethod
    async def _take(self) -> tuple[bytes, bool]:
        """The next part of the body, and whether more follows. CancelledError, and `left` set, if none can come."""

    def _whole(self) -> bytes | None:
        """The body, where all of it is here already."""
        return None

    @abstractmethod
    def _all_here(self) -> bool:
        """All of the body has arrived."""

    @abstractmethod
    def _tell(self, lost: Callable[[], None] | None) -> None:
        """Whom to tell when the caller's connection is gone."""

    @abstractmethod
    def _drop(self) -> None:
        """Close the connection at once: the caller sees that the answer is not whole."""

    @abstractmethod
    async def _begin(self, status: int, headers: Headers) -> None:
        """Send the head."""

    @abstractmethod
    async def _send(self, data: bytes, more: bool) -> None:
        """Send a part of the body; waits while the caller does not take it."""

    @property
    def request_id(self) -> str:
        """The caller's own id if it is short and plain, else a new one."""
        return request_id(self.headers)

    # -- the request

    async def read(self, limit: int) -> bytes:
        """See `call.Exchange`."""
        self._check_head(limit)
        body = self._whole()
        if body is None:
            self._reading = True
            body, more = await self._take_in_time()
            if more:
                body = await self._read_on(body, limit)
            self._reading = False
        if limit and len(body) > limit:
            raise _too_large(limit)
        return body

    async def _read_on(self, first: bytes, limit: int) -> bytes:
        parts, size, more = [first], len(first), True
        while more and not (limit and size > limit):
            part, more = await self._take_in_time()
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    async def _take_in_time(self) -> tuple[bytes, bool]:
        self._waiting_since = clock.now()
        try:
            return await self._take()
        except asyncio.CancelledError:
            if not self._late or self._task is None:
                raise
            self._task.uncancel()
            raise GatewayError("request_timeout", "The request body did not arrive in time.") from None
        finally:
            self._waited()

    def _check_head(self, limit: int) -> None:
        # No content type is fine, but not from a web page: browsers send that to any address without asking first.
        content_type = self.headers.get(b"content-type", b"" if b"origin" in self.headers else None)
        if content_type not in (None, b"application/json") and not _JSON.fullmatch(content_type):
            raise GatewayError("unsupported_media_type", "Send the body as 'content-type: application/json'.")
        encoding = self.headers.get(b"content-encoding")
        if encoding is not None and encoding.strip().lower() != b"identity":
            raise GatewayError("unsupported_media_type", "Compressed request bodies are not accepted; send plain JSON.")
        declared = self.headers.get(b"content-length", b"")
        if limit and declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
            raise _too_large(limit)

    # -- the caller

    def watch(self, call: Call) -> None:
        """See `call.Exchange`."""
        self._call = call
        self._task = asyncio.current_task()
        self._sent_at = call.arrived
        self._tell(self._on_lost)
        self._pulse.add(self)

    def release(self) -> None:
        """See `call.Exchange`."""
        self._tell(None)
        self._pulse.remove(self)
        self._task = None
        self._call = None  # with its body: an idle connection keeps its last exchange

    def _on_lost(self) -> None:
        if self._task is not None:
            self.left = True
            self._task.cancel()

    def look(self, now: float, patience: Patience) -> None:
        """See `pulse.Watched`."""
        if self._waiting_since is not None:
            waited = now - self._waiting_since
            if self._reading and waited > patience.body and self._task is not None:
                self._late = True
                self._task.cancel()
            elif not self._reading and waited > patience.stall:
                self._drop()
                self._on_lost()
        elif self._call is not None and self._call.body.stream and now - self._sent_at > patience.ping:
            self._tasks.spawn(self._ping(self._call))

    async def _ping(self, call: Call) -> None:
        """A comment, which no client takes for data. Before the commit point it opens the answer: status 200 and the
        headers that are known; another attempt may still follow."""
        if self._task is None or self._waiting_since is not None:
            return  # over by now, or bytes are on their way
        await self.start(call, b"text/event-stream; charset=utf-8", None)
        await self.write(_PING)

    # -- the answer

    async def start(self, call: Call, content_type: bytes, length: int | None) -> None:
        """See `call.Exchange`."""
        if self._started:
            return
        headers = call_headers(call)
        headers.append((b"content-type", content_type))
        headers.append((b"openai-processing-ms", b"%d" % ((clock.now() - call.arrived) * 1000)))
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        if call.body.stream:
            headers += ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
        call.status = 200
        await self._head(200, headers)

    async def _head(self, status: int, headers: Headers) -> None:
        self._started = True
        self._waiting_since = self._sent_at = clock.now()
        await self._begin(status, headers)
        self._waited()

    async def write(self, data: bytes) -> None:
        """See `call.Exchange`."""
        self._waiting_since = self._sent_at = clock.now()
        await self._send(data, True)
        self._waited()

    def pass_on(self, data: bytes) -> bool:
        """See `call.Exchange`: an adapter that cannot say what its caller takes leaves it at that."""
        return False

    async def end(self, data: bytes = b"") -> None:
        """See `call.Exchange`."""
        self._waiting_since = self._sent_at = clock.now()
        await self._send(data, False)
        self._waiting_since = None

    def _waited(self) -> None:
        """A read or a write is over; one that took long was a wait for the caller: not the gateway's own time."""
        if self._waiting_since is not None and self._call is not None:
            waited = clock.now() - self._waiting_since
            if waited > _OWN_MOMENT:
                self._call.waited += waited
        self._waiting_since = None

    async def fail(self, call: Call, error: GatewayError) -> None:
        """See `call.Exchange`."""
        if not self._started:
            await self._refuse(call, error)
        elif call.body.stream:
            await self.end(error_event(error))
        else:
            self._drop()

    async def _refuse(self, call: Call, error: GatewayError) -> None:
        body = error_body(error)
        headers = call_headers(call) + refused_by(call) + error_headers(error)
        headers += ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)))
        whole = self._all_here()
        if not whole:
            headers.append((b"connection", b"close"))
        call.status = error.status
        await self._head(error.status, headers)
        if not whole:
            await self.write(body)  # the caller has its answer; what it still sends is taken, so that no reset eats it
            await self._drain()
            body = b""
        await self.end(body)

    async def _drain(self) -> None:
        if b"expect" in self.headers:
            return
        taken = 0
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while taken < _DRAIN_BYTES:
                    part, more = await self._take()
                    taken += len(part)
                    if not more:
                        return
        except TimeoutError:
            return


def _too_large(limit: int) -> GatewayError:
    return GatewayError(
        "body_too_large", f"The request body is larger than {limit / (1 << 20):.4g} MB (gateway.max_body_mb)."
    )
