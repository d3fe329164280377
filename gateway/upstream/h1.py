"""One HTTP/1.1 connection to an upstream: httptools parses, this keeps time, flow control and the connection's fate.

One request at a time. The connection is given back to its pool by itself, once the answer has been read to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httptools

from gateway import clock
from gateway.clock import Deadlines
from gateway.errors import UpstreamFailure
from gateway.upstream.coding import Decoder

HIGH_WATER = 256 * 1024
"""Bytes read ahead of the caller before the upstream has to wait."""
MAX_HEAD = 64 * 1024
LINGER = 1.0
"""Seconds that the rest of an answer may take once nobody needs it, for the connection to be kept."""

_BODILESS = (204, 304)


class Connection(asyncio.Protocol):
    """The protocol object of one connection."""

    def __init__(self, deadlines: Deadlines, release: Callable[[Connection, bool], None]) -> None:
        self._deadlines = deadlines
        self._release = release
        """Called when the connection is free again (True) or gone (False)."""
        self._transport: Any = None
        self._parser: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._paused = False
        self._head_size = 0
        self._keep = False
        self._busy = False
        self._draining: asyncio.TimerHandle | None = None
        self._take: Callable[[bytes], bool] | None = None
        self._failure: str = ""
        self._lost = False
        self._gone = False
        self._framed = False
        self._head_done = False
        self._complete = False
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.opened = clock.now()
        self.idle_since = self.opened
        self.reused = False
        self.answered = False
        """Any byte of the answer has come."""

    # -- used by the pool and the reader

    @property
    def alive(self) -> bool:
        """May be used for a request."""
        return not self._lost and not self._transport.is_closing()

    def send(self, request: bytes, body: bytes) -> None:
        """Write one request; its answer is read by `head` and `read`."""
        self._parser = httptools.HttpResponseParser(self)
        self._busy = True
        self._head_done = self._complete = self._keep = self._framed = self.answered = False
        self._head_size = 0
        self._failure = ""
        self.headers = {}
        if len(body) < 16384:
            self._transport.write(request + body)
        else:
            self._transport.writelines((request, body))

    async def head(self, deadline: float) -> None:
        """Wait for status and headers. Raises UpstreamFailure timeout, cut, bad_response."""
        while not self._head_done:
            await self._wait(deadline, "no answer")

    async def read(self, deadline: float) -> bytes:
        """The next body bytes; b"" at the end. Raises UpstreamFailure timeout, cut, bad_response."""
        while not self._chunks:
            if self._complete:
                self._finish()
                return b""
            await self._wait(deadline, "no more of the answer")
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._resume()
        return data

    def offer(self, take: Callable[[bytes], bool]) -> None:
        """See `call.Incoming`; until the end of this answer."""
        self._take = take

    def close(self, almost_over: bool = False) -> None:
        """Done with this answer. An answer that is `almost_over` gets a moment to end, so that the connection can be
        kept; any other that is not over costs its connection, which tells the upstream to stop."""
        if not self._busy or self._draining is not None:
            return
        self._chunks.clear()
        self._resume()  # a paused connection would neither answer its next request nor show that its peer has gone
        if self._complete or not (almost_over and self.alive):
            self._finish()
            return
        self._draining = asyncio.get_running_loop().call_later(LINGER, self._finish)

    def gone(self) -> None:
        """Tell the pool, once, that this connection is no more."""
        if not self._gone:
            self._gone = True
            self._release(self, False)

    def retire(self) -> None:
        """Close, unless somebody still reads an answer."""
        if self._draining is not None:
            self._finish()
        elif not self._busy:
            self.abort()

    def abort(self) -> None:
        """Close at once, without caring for what is in flight."""
        if self._transport is not None:
            self._transport.abort()

    # -- waiting

    async def _wait(self, deadline: float, missing: str) -> None:
        if self._failure:
            raise UpstreamFailure("bad_response", self._failure)
        if self._lost:
            raise UpstreamFailure("cut", "the connection broke" + (" in the answer" if self.answered else ""))
        self._waiter = future = asyncio.get_running_loop().create_future()
        waiter = self._deadlines.add(future, deadline)
        try:
            await future
        except TimeoutError:
            raise UpstreamFailure("timeout", f"{missing} in time") from None
        finally:
            self._deadlines.discard(waiter)
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why
        self.abort()

    def _resume(self) -> None:
        self._buffered = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def _finish(self) -> None:
        """Nobody reads this answer any more: the one place where the connection goes back or away."""
        if not self._busy:
            return
        self._busy = False
        self._parser = self._take = None  # they hold this connection: nothing for the garbage collector
        if self._draining is not None:
            self._draining.cancel()
            self._draining = None
        self.idle_since = clock.now()
        if self._complete and self._keep and not self._failure and self.alive and not self._unsent():
            self._release(self, True)
        else:
            self.abort()
            self.gone()

    def _unsent(self) -> bool:
        """Some of the request has not gone out: it was answered unread."""
        return bool(self._transport.get_write_buffer_size())

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._busy:
            self.abort()  # an idle connection has nothing to say
            return
        self.answered = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail("bytes that are not HTTP")
        if not self._head_done:  # only now: what came along with the head's end is body
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self._fail("headers of unreasonable size")
        if self._buffered > HIGH_WATER and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        if self._take is not None and self._passed_on(self._take):
            return
        self._wake()
        if self._complete and self._draining is not None:
            self._finish()

    def _passed_on(self, take: Callable[[bytes], bool]) -> bool:
        """What has come went past the read that waits for it, and nothing ends with it. Were nobody waiting, whoever
        reads would be busy with what came before."""
        waiter, chunks = self._waiter, self._chunks
        if waiter is None or waiter.done() or self._complete or self._failure or not chunks:
            return False
        if not take(chunks[0] if len(chunks) == 1 else b"".join(chunks)):
            return False
        chunks.clear()
        self._resume()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._busy and self._head_done and not self._framed and exc is None and not self._failure:
            self._complete = True  # delimited by the close itself
        self._wake()
        if self._draining is not None:
            self._finish()
        if not self._busy:
            self.gone()

    # -- httptools callbacks; what comes after the end of the answer belongs to nobody, and costs the connection

    def on_message_begin(self) -> None:
        if self._complete:
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:  # nobody needs trailers
            self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.headers = {}  # an interim answer (100, 103); the real one follows
            return
        self.status = status
        length = self.headers.get(b"content-length")
        chunked = b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()
        self._framed = chunked or length is not None or status in _BODILESS
        self._head_done = True

    def on_body(self, data: bytes) -> None:
        if self._complete or self._draining is not None:
            return
        self._chunks.append(data)
        self._buffered += len(data)

    def on_message_complete(self) -> None:
        if self._complete or not self._head_done:
            return
        self._keep = self._parser.should_keep_alive()  # right only in here
        self._complete = True


class Answering:
    """The answer on a connection, as the relay reads it (`call.Incoming`).

    Once its end has been read, or it is closed, the connection is another call's: it is let go of at that moment.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self.status = connection.status
        self.headers = connection.headers
        self._decoder = Decoder.of(self.headers)

    async def read(self, deadline: float) -> bytes:
        """See `call.Incoming`."""
        if self._decoder is None:
            return await self._read(deadline)
        data = await self._decoder.read(self._read, deadline)
        if not data:
            self.close(almost_over=True)
        return data

    async def _read(self, deadline: float) -> bytes:
        if self._connection is None:
            return b""
        data = await self._connection.read(deadline)
        if not data:
            self._connection = None
        return data

    def offer(self, take: Callable[[bytes], bool]) -> None:
        """See `call.Incoming`. A compressed answer's bytes are not for passing on."""
        if self._connection is not None and self._decoder is None:
            self._connection.offer(take)

    def close(self, almost_over: bool = False) -> None:
        """See `call.Incoming`."""
        if self._connection is not None:
            self._connection.close(almost_over)
            self._connection = None
