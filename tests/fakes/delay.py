"""A TCP proxy on 127.0.0.1 that passes everything on after a time that a test can change.

async with Delay(server.port) as proxy:
    proxy.seconds = 0.4      # each way, from now on
    ...                      # connect to proxy.port
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Delay:
    """The proxy. `sent`: all bytes that its clients have sent."""

    def __init__(self, port: int, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.sent = bytearray()
        self._far = port
        self._work: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._work.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._far)
            ways = [
                asyncio.ensure_future(self._pass(reader, far_writer, self.sent)),
                asyncio.ensure_future(self._pass(far_reader, writer, bytearray())),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                far_writer.transport.abort()
        writer.transport.abort()
        self._work.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: bytearray) -> None:
        while data := await reader.read(65536):
            seen += data
            await asyncio.sleep(self.seconds)
            writer.write(data)
