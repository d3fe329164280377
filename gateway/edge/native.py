"""The thin adapter: an inference call straight on uvicorn's connection, below ASGI.

uvicorn's protocol class parses the request and keeps its connections, queues and tasks; only the cycle that it would
make for an application is replaced. Everything that such a cycle is asked for is here under uvicorn's names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from gateway import clock
from gateway.call import Endpoint, Headers
from gateway.clock import Tasks
from gateway.edge.exchange import Exchange
from gateway.edge.pulse import Pulse
from gateway.edge.visits import Tell

_STATUS = MappingProxyType({s.value: b"HTTP/1.1 %d %b\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus})


def _nobody(peer: str, headers: Mapping[bytes, bytes], line: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Inference:
    """What a connection needs to run inference calls."""

    run: Callable[[Exchange], Awaitable[None]]
    """The flow."""
    endpoints: Mapping[bytes, Endpoint]
    """Request target -> endpoint."""
    pulse: Pulse
    tasks: Tasks
    tell: Tell = _nobody
    """Of a request that could not be read."""
    closed_port: int | None = None
    """Where inference is not served."""


class NativeExchange(Exchange):
    """One request on an uvicorn connection; takes the place of its `RequestResponseCycle`."""

    def __init__(
        self,
        inference: Inference,
        endpoint: Endpoint,
        headers: dict[bytes, bytes],
        connection: Any,
        keep_alive: bool,
    ) -> None:
        client = connection.client
        super().__init__(endpoint, headers, client[0] if client else "", inference.pulse, inference.tasks)
        self._run = inference.run
        self._connection = connection
        self._transport = connection.transport
        self._flow = connection.flow
        self._continue = connection.expect_100_continue
        self._news: asyncio.Future[None] | None = None
        self._pending = b""
        """The head, until it goes out together with the first bytes of the body."""
        self._chunked = False
        self._parts: list[bytes] = []
        self._unread = 0
        # What uvicorn's connection reads and sets.
        self.more_body = True
        self.disconnected = False
        self.keep_alive = keep_alive
        self.response_started = False
        self.response_complete = False

    @property
    def message_event(self) -> NativeExchange:
        """What uvicorn's connection sets."""
        return self

    def set(self) -> None:
        """Body bytes, their end, or the end of the connection have come (uvicorn's `message_event.set()`)."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def run_asgi(self, app: Any) -> None:
        """What uvicorn runs for this request."""
        try:
            await self._run(self)
        finally:
            if not self.response_complete and not self.disconnected:
                self._drop()

    def got(self, data: bytes) -> None:
        """Body bytes have come."""
        self._parts.append(data)
        self._unread += len(data)
        if self._unread > HIGH_WATER_LIMIT:
            self._flow.pause_reading()
        self.set()

    def _whole(self) -> bytes | None:
        if self.more_body:
            return None
        self._flow.resume_reading()
        return self._taken()

    def _taken(self) -> bytes:
        part = b"".join(self._parts)  # a body in one piece is not copied
        self._parts.clear()
        self._unread = 0
        return part

    def _all_here(self) -> bool:
        return not self.more_body

    def _tell(self, lost: Callable[[], None] | None) -> None:
        self._connection.on_lost = lost

    def _drop(self) -> None:
        self.disconnected = True
        self._transport.abort()

    async def _take(self) -> tuple[bytes, bool]:
        if self._continue:
            self._continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._flow.resume_reading()  # also where the whole body is here: a paused connection does not tell its end
        while not self._parts and self.more_body and not self.disconnected:
            self._flow.resume_reading()
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if self.disconnected:
            self.left = True
            raise asyncio.CancelledError
        return self._taken(), self.more_body

    async def _begin(self, status: int, headers: Headers) -> None:
        self._continue = False
        self.response_started = True
        names = [name for name, _ in headers]
        self._chunked = b"content-length" not in names
        if b"connection" in names:
            self.keep_alive = False  # there is but one word for it to say
        elif not self.keep_alive:
            headers.append((b"connection", b"close"))
        if self._chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        lines = [b": ".join(pair) for pair in (*self._connection.server_state.default_headers, *headers)]
        self._pending = b"%b%b\r\n\r\n" % (_STATUS.get(status) or b"HTTP/1.1 %d \r\n" % status, b"\r\n".join(lines))

    async def _send(self, data: bytes, more: bool) -> None:
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if self._chunked:
            framed = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            data = framed if more else framed + b"0\r\n\r\n"
        if self._pending:
            data, self._pending = self._pending + data, b""
        self._transport.write(data)
        if not more:
            self.response_complete = True
            if not self.keep_alive:
                self._transport.close()
            self._connection.on_response_complete()

    def pass_on(self, data: bytes) -> bool:
        """See `call.Exchange`. It runs for nearly every piece of every stream."""
        if self._flow.write_paused or self._pending or self._waiting_since is not None or self.disconnected:
            return False
        self._sent_at = clock.now()
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        return True
