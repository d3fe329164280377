"""A caller without HTTP: what the flow needs of a web server, in memory."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from gateway.call import ENDPOINTS, Call
from gateway.errors import GatewayError
from gateway.wiring import Gateway


class MemoryExchange:
    """See `call.Exchange`."""

    peer = "127.0.0.1"

    def __init__(self, gateway: Gateway, body: Any, *, endpoint: str = "chat", number: int = 0) -> None:
        self.endpoint = ENDPOINTS[endpoint]
        self.headers: dict[bytes, bytes] = {}
        self.request_id = f"req_{number}"
        self.left = False
        self.call: Call | None = None
        self.started = asyncio.Event()
        """Status and headers are out."""
        self.over = False
        self.pieces: list[bytes] = []
        self.error: GatewayError | None = None
        self._gateway = gateway
        self._body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> bytes:
        """Make the call; the answer's bytes."""
        await self._gateway.flow.run(self)
        return b"".join(self.pieces)

    def leave(self) -> None:
        """The caller's connection ends."""
        if self._task is not None:
            self.left = True
            self._task.cancel()

    # What the flow does.

    async def read(self, limit: int) -> bytes:
        await asyncio.sleep(0)
        return self._body

    def watch(self, call: Call) -> None:
        self.call, self._task = call, asyncio.current_task()

    async def start(self, call: Call, content_type: bytes, length: int | None) -> None:
        call.status = 200
        self.started.set()

    async def write(self, data: bytes) -> None:
        self.pieces.append(data)
        await asyncio.sleep(0)

    def pass_on(self, data: bytes) -> bool:
        self.pieces.append(data)
        return True

    async def end(self, data: bytes = b"") -> None:
        self.pieces.append(data)
        self.over = True

    async def fail(self, call: Call, error: GatewayError) -> None:
        self.error = error
        self.over = True

    def release(self) -> None:
        self._task = None


def asking(model: str = "auto", **fields: Any) -> dict[str, Any]:
    """The body of a small chat call."""
    return {"model": model, "messages": [{"role": "user", "content": "hello"}]} | fields
