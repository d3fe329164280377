"""A transport without a socket: keeps what is written, and closes as asyncio's own would."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Iterable
from typing import Any


@functools.cache
def _runner() -> asyncio.Runner:
    return asyncio.Runner()


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine in a loop that is kept: a new one for each input would take most of the time."""
    _runner().run(work)


class Transport(asyncio.Transport):
    """Needs a running loop."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("127.0.0.1", 50000), "sockname": ("127.0.0.1", 8080)})
        self.written = bytearray()
        self.reading = True
        self._protocol = protocol
        self._closing = self._ended = False
        protocol.connection_made(self)

    def receive(self, data: bytes) -> None:
        """The peer's bytes, unless the connection is closed."""
        if not self._closing:
            self._protocol.data_received(data)

    def end(self) -> None:
        """The peer says nothing more."""
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._ended = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not self._closing:
            self.written += data

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
