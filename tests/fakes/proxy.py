"""A small real proxy on 127.0.0.1: CONNECT, plain forwarding and SOCKS5 on one port, told apart by the first byte.

    async with Proxy() as proxy:
        ...                                       # use proxy.http or proxy.socks as the proxy's URL
        assert proxy.asked == ["127.0.0.1:4711"]  # one entry per connection

Bytes are passed on both ways with back-pressure; whoever ends first ends both sides, a reset as a reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.fakes.wire import HEAD_END, set_option

_SOCKS = b"\x05"
_PIECE = 65536


class Proxy:
    """The proxy. `answer`: instead of doing its work, it says this to every request and closes."""

    def __init__(self, answer: bytes | None = None) -> None:
        self.asked: list[str] = []
        """Host and port of each connection, in order."""
        self._answer = answer
        self._work: set[asyncio.Task[None]] = set()

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def socks(self) -> str:
        return f"socks5://127.0.0.1:{self._port}"

    async def until_idle(self) -> None:
        """Wait until all its connections have ended."""
        while self._work:
            await asyncio.wait(self._work)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
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
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                first = await reader.readexactly(1)
                await (self._socks(reader, writer) if first == _SOCKS else self._http(first, reader, writer))
        except asyncio.CancelledError:
            pass  # the end of the test; a stream server would report it
        finally:
            writer.transport.abort() if self._answer is None else writer.close()
            self._work.discard(task)

    async def _http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = first + await reader.readuntil(HEAD_END)
        line, _, rest = head.partition(b"\r\n")
        method, target, version = line.split(b" ")
        if self._answer is not None:
            writer.write(self._answer)
            return
        if method == b"CONNECT":
            host, _, port = target.decode().rpartition(":")
            refusal, greeting, opening = b"HTTP/1.1 502 Bad Gateway\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b""
        else:
            url = urlsplit(target.decode())
            host, port = url.hostname or "", str(url.port)
            # Later requests on this connection reach the server as they are: it must take the absolute form as well.
            refusal, greeting = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", b""
            opening = b"%b %b %b\r\n%b" % (method, url.path.encode(), version, rest)
        await self._relay(host, int(port), refusal, greeting, opening, reader, writer)

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly((await reader.readexactly(1))[0])  # the ways to log in: none is needed
        writer.write(b"\x05\x00" if self._answer is None else self._answer)
        if self._answer is not None:
            return
        kind = (await reader.readexactly(4))[3]
        size = 4 if kind == 1 else (await reader.readexactly(1))[0]
        address = await reader.readexactly(size)
        (port,) = struct.unpack("!H", await reader.readexactly(2))
        host = socket.inet_ntoa(address) if kind == 1 else address.decode()
        done = b"\x00\x01" + bytes(6)
        await self._relay(host, port, b"\x05\x05" + done, b"\x05\x00" + done, b"", reader, writer)

    async def _relay(
        self,
        host: str,
        port: int,
        refusal: bytes,
        greeting: bytes,
        opening: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.asked.append(f"{host}:{port}")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.write(refusal)
            await writer.drain()
            return
        writer.write(greeting)
        far_writer.write(opening)
        ways = {
            asyncio.create_task(_pipe(reader, far_writer)),
            asyncio.create_task(_pipe(far_reader, writer)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        set_option(writer.transport, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return
    writer.transport.set_write_buffer_limits(high=0)
    with contextlib.suppress(ConnectionError):
        await writer.drain()  # all of it, before the connection ends
