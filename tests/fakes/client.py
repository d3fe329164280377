"""A raw HTTP/1.1 client: it sends exact bytes, shows what came piece by piece, and may stop or leave at any moment.

async with connect(gw.url) as client:
    await client.send(post("/v1/chat/completions", {"model": "auto", "stream": True, "messages": [...]}))
    answer = await client.response()
    async for piece in answer.pieces():
        ...
    assert answer.complete

answer = await fetch(gw.url, "/v1/models")      # one request on a connection of its own
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from tests.fakes.chat import to_json
from tests.fakes.wire import (
    HEAD_END,
    BodyDecoder,
    Headers,
    find_header,
    header_pairs,
    parse_head,
    render_head,
    set_option,
    until_peer_has_read,
)

AnyHeaders = Mapping[str, str] | Sequence[tuple[str, str]]


class Cut(Exception):
    """The connection ended before the answer did. `reset`: by RST."""

    def __init__(self, message: str, *, reset: bool) -> None:
        super().__init__(message)
        self.reset = reset


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that arrived in one read, and when (seconds of `time.monotonic`)."""

    data: bytes
    at: float


def request(method: str, target: str, headers: AnyHeaders = (), body: Any = None) -> bytes:
    """A request's bytes. `body`: bytes, or any value for JSON; None: no body. Given headers win over the usual ones."""
    content = body if isinstance(body, bytes) else b"" if body is None else to_json(body)
    given = header_pairs(headers)
    usual = [("host", "test")]
    if body is not None:
        usual += [("content-type", "application/json"), ("content-length", str(len(content)))]
    if find_header(given, "transfer-encoding"):
        usual = [pair for pair in usual if pair[0] != "content-length"]
    pairs = [pair for pair in usual if find_header(given, pair[0]) is None] + given
    return render_head(f"{method} {target} HTTP/1.1", pairs) + content


def post(target: str, body: Any, headers: AnyHeaders = ()) -> bytes:
    """`request` for a POST."""
    return request("POST", target, headers, body)


@dataclass
class Response:
    """An answer whose head has come; the body follows by `read` or `pieces`, once."""

    status: int
    reason: str
    headers: Headers
    head: bytes
    at: float
    """When the head was complete, seconds of `time.monotonic`."""
    complete: bool = False
    """The whole body has been handed out, as its framing says."""
    body: bytes = b""
    """What `read` or `fetch` has read."""
    _client: Client | None = field(default=None, repr=False)

    def header(self, name: str) -> str | None:
        """The first value of that name, in any spelling."""
        return find_header(self.headers, name)

    def json(self) -> Any:
        return json.loads(self.body)

    async def read(self) -> bytes:
        """The rest of the body. Raises `Cut` if the connection ends first."""
        self.body += b"".join([piece.data async for piece in self.pieces()])
        return self.body

    def pieces(self) -> AsyncIterator[Piece]:
        """The body as it arrives: one piece for what one read brought, chunking undone. Raises `Cut` like `read`."""
        assert self._client is not None
        return self._client.body_of(self)


class Client(asyncio.Protocol):
    """One connection; made by `connect`."""

    def __init__(self) -> None:
        self.received: list[Piece] = []
        """Everything that came, as it came off the socket."""
        self._unread: list[Piece] = []
        self._buffer = bytearray()
        self._arrived_at = 0.0
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._ended = False
        self._lost = asyncio.Event()
        self.was_reset = False
        """The other side ended the connection by RST."""
        self._asked: list[bytes] = []
        self._decoder: BodyDecoder | None = None

    # What a test does.

    async def send(self, data: bytes, *, separate: bool = False) -> None:
        """One write of exactly these bytes; `separate`: go on only when the other side has read them."""
        if asks := re.match(rb"([A-Z]+) \S+ HTTP/1", data):
            self._asked.append(asks[1])
        self._transport.write(data)
        await self._writable.wait()
        if separate:
            await until_peer_has_read(*self._ends)

    async def response(self, *, interim: bool = False) -> Response:
        """The next answer, when its head is here; 1xx ones are skipped unless `interim`. Raises `Cut`."""
        while True:
            while (end := self._buffer.find(HEAD_END)) < 0:
                if not await self._more():
                    raise self._cut("before the head of an answer was here")
            head = bytes(self._buffer[: end + len(HEAD_END)])
            del self._buffer[: len(head)]
            first, headers = parse_head(head)
            _, status, reason = (first + " ").split(" ", 2)
            if interim or int(status) >= 200:
                break
        response = Response(int(status), reason.strip(), headers, head, self._arrived_at, _client=self)
        empty = response.status < 200 or response.status in (204, 304) or self._method() == b"HEAD"
        self._decoder = BodyDecoder([] if empty else headers, "empty" if empty else "until_close")
        return response

    async def until_closed(self) -> None:
        """Wait until the other side has ended the connection."""
        while not self._ended:
            self._news.clear()
            await self._news.wait()

    def stop_reading(self) -> None:
        """Take nothing more off the socket: what comes piles up in the kernel, then at the other side."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def close(self) -> None:
        """Leave in the ordinary way (FIN)."""
        self._transport.close()

    def reset(self) -> None:
        """Leave by RST."""
        set_option(self._transport, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def send_eof(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        self._transport.write_eof()

    async def body_of(self, response: Response) -> AsyncIterator[Piece]:
        """See `Response.pieces`."""
        decoder = self._decoder
        assert decoder is not None
        while True:
            data = decoder.feed(self._buffer)
            if data:
                yield Piece(data, self._arrived_at)
            if not decoder.complete and await self._more():
                continue
            response.complete = decoder.complete or (decoder.until_close and not self.was_reset)
            if not response.complete:
                raise self._cut("within the body")
            return

    # What the event loop does.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._writable.set()
        set_option(transport, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ends = (transport.get_extra_info("sockname"), transport.get_extra_info("peername"))

    def data_received(self, data: bytes) -> None:
        piece = Piece(bytes(data), time.monotonic())
        self.received.append(piece)
        self._unread.append(piece)
        self._news.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def eof_received(self) -> None:
        self._ended = True
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self.was_reset = self.was_reset or isinstance(exc, ConnectionError)
        self._news.set()
        self._writable.set()
        self._lost.set()

    async def gone(self) -> None:
        """Wait until the socket is closed on this side as well."""
        await self._lost.wait()

    async def _more(self) -> bool:
        """Move the next piece into the buffer; False when the connection has ended and nothing more will come."""
        while not self._unread:
            if self._ended:
                await self._lost.wait()
                return False
            self._news.clear()
            await self._news.wait()
        piece = self._unread.pop(0)
        self._buffer += piece.data
        self._arrived_at = piece.at
        return True

    def _cut(self, where: str) -> Cut:
        return Cut(f"the connection {'was reset' if self.was_reset else 'ended'} {where}", reset=self.was_reset)

    def _method(self) -> bytes:
        return self._asked.pop(0) if self._asked else b""


@asynccontextmanager
async def connect(
    url: str, *, tls: ssl.SSLContext | None = None, receive_buffer: int | None = None
) -> AsyncIterator[Client]:
    """A connection to the URL's host and port (IPv4). `receive_buffer`: bytes, a small one shows back-pressure soon."""
    parts = urlsplit(url)
    link = socket.socket()
    link.setblocking(False)
    if receive_buffer is not None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(link, (parts.hostname, parts.port))
        name = parts.hostname if tls else None
        _, client = await loop.create_connection(Client, sock=link, ssl=tls, server_hostname=name)
    except BaseException:
        link.close()
        raise
    try:
        yield client
    finally:
        client._transport.abort()
        await client.gone()


async def fetch(
    url: str,
    target: str,
    body: Any = None,
    *,
    method: str | None = None,
    headers: AnyHeaders = (),
    tls: ssl.SSLContext | None = None,
) -> Response:
    """One request on a connection of its own; the answer's `body` has been read. GET without a body, POST with one."""
    async with connect(url, tls=tls) as client:
        await client.send(request(method or ("GET" if body is None else "POST"), target, headers, body))
        response = await client.response()
        await response.read()
        return response
