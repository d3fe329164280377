"""A scripted upstream: a real HTTP/1.1 server on 127.0.0.1 that sends exact bytes and records what it gets.

    async with Upstream() as up:
        up.script(Sse(answer("Hel", "lo")))     # the next POST; afterwards it answers by itself (echo.py)
        ...                                     # point the gateway at up.url
        call = await up.call(0)                 # the first POST, once it has arrived completely
        assert call.json()["model"] == "fake"

An end of file from the peer counts as the peer having left: the script running for it is cancelled.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Self, cast

from tests.fakes.echo import echo
from tests.fakes.record import Connections, Request, Script
from tests.fakes.steps import Step
from tests.fakes.wire import HEAD_END, BodyDecoder, parse_head, set_option, until_peer_has_read


class Exchange:
    """What a step works with: one request and the connection that waits for its answer."""

    def __init__(self, upstream: Upstream, request: Request, connection: Connection) -> None:
        self.upstream = upstream
        self.request = request
        self.ended = False
        """The script closed or reset the connection."""
        self._connection = connection

    async def send(self, data: bytes, *, separate: bool = True) -> None:
        """One write; returns when the kernel has all of it and, if `separate`, the peer has read it."""
        if self.ended:
            raise RuntimeError("the script sends after it has closed the connection")
        if not data:
            return
        transport, before = self._connection.transport, self.request.written
        transport.write(data)
        self.request.written = before + max(0, len(data) - transport.get_write_buffer_size())
        await self._connection.writable.wait()
        self.request.written = before + len(data)
        if separate:
            await until_peer_has_read(*self._connection.ends)

    def close(self) -> None:
        """FIN, after all that was sent."""
        self.ended = True
        self._connection.close()

    def reset(self) -> None:
        """RST, now."""
        self.ended = True
        self._connection.reset()


class Connection(asyncio.Protocol):
    """One connection of the upstream; requests on it are answered one after the other."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.writable = asyncio.Event()
        self.lost = asyncio.Event()
        self.busy: asyncio.Task[None] | None = None
        self._ended = False
        self._buffer = bytearray()
        self._request: Request | None = None
        self._script = Script(())
        self._decoder = BodyDecoder([], "empty")
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=1, low=0)  # with 0, asyncio pauses TLS for good
        self.writable.set()
        set_option(transport, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ends = (transport.get_extra_info("sockname"), transport.get_extra_info("peername"))
        self.number = self.upstream.joined(self)
        self._await_request()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._idle:
            self._idle.cancel()
        try:
            self._advance()
        except ValueError as fault:  # not HTTP: the gateway's fault, and the test should know
            self._fail(fault)

    def eof_received(self) -> None:
        self._peer_left()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer_left(reset=isinstance(exc, ConnectionError))
        if self._idle:
            self._idle.cancel()
        self.upstream.left(self)
        self.lost.set()

    def close(self) -> None:
        """FIN, after all that was written."""
        self._ended = True
        self.transport.close()

    def reset(self) -> None:
        """RST, now."""
        self._ended = True
        set_option(self.transport, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    @property
    def idle(self) -> bool:
        return self._request is None

    def _peer_left(self, *, reset: bool = False) -> None:
        if self._request and not self._request.done.is_set() and not self._ended:
            self._request.reset = reset
            self._request.closed.set()
        if self.busy:
            self.busy.cancel()

    def _await_request(self) -> None:
        self._request = None
        if not self.transport.is_reading():
            self.transport.resume_reading()
        if self.upstream.idle is not None:
            self._idle = asyncio.get_running_loop().call_later(self.upstream.idle, self.close)
        self._advance()

    def _advance(self) -> None:
        """Go as far as the bytes that are here allow: head, body, script."""
        if self.busy or not self._buffer or (self._request is None and not self._take_head()):
            return
        assert self._request is not None
        if self._script.reads_body:
            self._request.content += self._decoder.feed(self._buffer)
            if not self._decoder.complete:
                return
            self._request.received.set()
            self.upstream.changed()
        else:
            self.transport.pause_reading()
        self.busy = asyncio.get_running_loop().create_task(self._run(self._request, self._script))
        self.busy.add_done_callback(self._ran)

    def _take_head(self) -> bool:
        end = self._buffer.find(HEAD_END)
        if end < 0:
            return False
        head = bytes(self._buffer[: end + len(HEAD_END)])
        del self._buffer[: len(head)]
        first, headers = parse_head(head)
        method, target, _ = first.split(" ", 2)
        self._request = Request(len(self.upstream.requests), self.number, head, method, target, headers)
        self._decoder = BodyDecoder(headers, "empty")
        self._script = self.upstream.arrived(self._request)
        return True

    async def _run(self, request: Request, script: Script) -> None:
        exchange = Exchange(self.upstream, request, self)
        for step in script.steps:
            await step(exchange)
        if not self._decoder.complete:
            self.close()  # what is left of the body must not be taken for the next request

    def _ran(self, task: asyncio.Task[None]) -> None:
        assert self._request is not None
        self._request.done.set()
        self.busy = None
        failure = None if task.cancelled() else task.exception()
        if failure:
            self._fail(failure)
        elif not task.cancelled() and not self.transport.is_closing():
            self._await_request()

    def _fail(self, failure: BaseException) -> None:
        self.upstream.failures.append(failure)
        self._ended = True
        self.transport.abort()


class Upstream:
    """The server; see the module's head. All its lists and counters may be read at any time.

    `models`: what GET /models lists. `idle`: seconds after which an unused connection is closed. `tls`: serve https
    (tls.py makes contexts). `receive_buffer`, `send_buffer`: bytes for the kernel's buffers of each connection, small
    ones make back-pressure visible early. `port`: a fixed one, to come back where another upstream has stopped.
    """

    def __init__(
        self,
        *,
        models: Sequence[str] = ("fake",),
        idle: float | None = None,
        tls: ssl.SSLContext | None = None,
        receive_buffer: int | None = None,
        send_buffer: int | None = None,
        port: int = 0,
        default: Step = echo,
    ) -> None:
        self.models = list(models)
        self.idle = idle
        self.port = port
        self.requests: list[Request] = []
        self.connections = Connections()
        self.failures: list[BaseException] = []
        """What scripts raised and what was not HTTP; leaving the context raises it again."""
        self.scripts: list[Script] = []
        """Those that still wait for a request."""
        self._default = Script((default,))
        self._tls = tls
        self._buffers = {socket.SO_RCVBUF: receive_buffer, socket.SO_SNDBUF: send_buffer}
        self._live: set[Connection] = set()
        self._news = asyncio.Event()
        self._stopped = False

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The base URL that an OpenAI SDK would be given."""
        return f"{self.origin}/v1"

    @property
    def calls(self) -> list[Request]:
        """The POST requests: what callers caused, without the gateway's own questions."""
        return [request for request in self.requests if request.method == "POST"]

    def script(self, *steps: Step, path: str | None = None, times: int | None = 1) -> None:
        """Answer the next `times` requests (None: all) whose path ends with `path` by these steps.

        Without `path`: the next POST requests. The oldest script that matches a request answers it; where none does,
        the default answers. After the last step the connection waits for its next request, unless a step closed it.
        """
        self.scripts.append(Script(steps, path, times))

    def count(self, path: str = "", method: str = "POST") -> int:
        """How many requests came for a path with that end."""
        return sum(request.method == method and request.path.endswith(path) for request in self.requests)

    async def call(self, number: int = 0) -> Request:
        """The POST request of that number (from 0), as soon as it is here with its whole body."""
        while len(self.calls) <= number:
            await self._next_change()
        request = self.calls[number]
        await request.received.wait()
        return request

    async def until_open(self, count: int) -> None:
        """Wait until exactly that many connections are open."""
        while self.connections.open != count:
            await self._next_change()

    def close_idle(self, *, reset: bool = False) -> int:
        """Close the connections that wait for a request (what a stale keep-alive is); returns how many."""
        idle = [connection for connection in self._live if connection.idle]
        for connection in idle:
            connection.reset() if reset else connection.close()
        return len(idle)

    async def __aenter__(self) -> Self:
        self._stopped = False
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option, size in self._buffers.items():
            if size is not None:
                listener.setsockopt(socket.SOL_SOCKET, option, size)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), sock=listener, ssl=self._tls, backlog=1024)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self.failures and error is None:
            raise self.failures[0]

    async def stop(self) -> None:
        """Stop listening and cut every connection; nothing of it is left afterwards. A second call does nothing."""
        self._stopped = True
        self._server.close()
        live = list(self._live)
        busy = [connection.busy for connection in live if connection.busy]
        for connection in live:
            connection.transport.abort()
        await asyncio.gather(*busy, *(connection.lost.wait() for connection in live), return_exceptions=True)
        await self._server.wait_closed()
        assert not self._live, "the upstream left connections behind"
        assert all(task.done() for task in busy), "the upstream left tasks behind"

    # What connections report.

    def joined(self, connection: Connection) -> int:
        """Count a new connection; returns its number."""
        self._live.add(connection)
        if self._stopped:  # it was accepted before, and told of now
            connection.transport.abort()
        self.connections.open += 1
        self.connections.total += 1
        self.connections.peak = max(self.connections.peak, self.connections.open)
        self.changed()
        return self.connections.total - 1

    def left(self, connection: Connection) -> None:
        """Count one that has gone."""
        self._live.discard(connection)
        self.connections.open -= 1
        self.changed()

    def arrived(self, request: Request) -> Script:
        """List a request and choose its script."""
        self.requests.append(request)
        self.changed()
        script = next((script for script in self.scripts if script.matches(request)), self._default)
        if script is not self._default and script.times is not None:
            script.times -= 1
            self.scripts = [script for script in self.scripts if script.times != 0]
        return script

    def changed(self) -> None:
        """Wake whoever waits for something to happen."""
        self._news.set()

    async def _next_change(self) -> None:
        self._news.clear()
        await self._news.wait()
