"""The ASGI adapter: for whatever `native.py` leaves (HTTP/1.0, pages of other origins, unusual targets)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gateway.call import Endpoint, Headers
from gateway.clock import Tasks
from gateway.edge.exchange import Exchange
from gateway.edge.line import headers_of, line_of
from gateway.edge.pulse import Pulse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiExchange(Exchange):
    """One HTTP scope."""

    def __init__(
        self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send, pulse: Pulse, tasks: Tasks
    ) -> None:
        peer = (scope.get("client") or ("",))[0]
        super().__init__(endpoint, headers_of(scope["headers"]), peer, pulse, tasks)
        self._line = line_of(scope)
        self._receive_message = receive
        self._send_message = send

    async def _take(self) -> tuple[bytes, bool]:
        message = await self._receive_message()
        if message["type"] == "http.disconnect":
            self.left = True
            raise asyncio.CancelledError
        return message.get("body", b""), message.get("more_body", False)

    def _all_here(self) -> bool:
        return self._line.body_complete

    def _tell(self, lost: Callable[[], None] | None) -> None:
        self._line.on_lost(lost)

    def _drop(self) -> None:
        self._line.drop()

    async def _begin(self, status: int, headers: Headers) -> None:
        await self._send_message({"type": "http.response.start", "status": status, "headers": headers})

    async def _send(self, data: bytes, more: bool) -> None:
        await self._send_message({"type": "http.response.body", "body": data, "more_body": more})
