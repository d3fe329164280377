"""The web server: uvicorn's, plus the two things that ASGI does not tell an application."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway import clock
from gateway.call import Endpoint
from gateway.edge.line import SCOPE_KEY, Line, headers_of
from gateway.edge.native import Inference, NativeExchange
from gateway.edge.render import error_body, error_headers, request_id
from gateway.edge.visits import shown
from gateway.errors import GatewayError

MAX_HEAD = 64 * 1024
HEAD_SECONDS = 30.0
"""From the connection, or from a head's first byte, until the head has to be whole."""
LINGER_SECONDS = 2.0
"""Between a last answer and the close: what the caller still sends is taken, so that no reset eats the answer."""
_H2C = re.compile(rb"\r\nupgrade:[^\r\n]*h2c[^\r\n]*", re.IGNORECASE)


class Connection(HttpToolsProtocol):
    """Tells the exchange that the caller left; bounds request heads; refuses what is not HTTP in OpenAI's shape."""

    on_lost: Callable[[], None] | None = None
    """Called once when the caller's connection is gone."""
    _in_head = False
    _head_size = 0
    _head_new = False
    """It has begun within these bytes."""
    _refused = False
    """The last answer has been given; what still comes is not read."""
    _head_since: float | None = None
    """Since when a head is awaited; None: a request is being answered, or the next one has not begun."""

    def __init__(self, *arguments: Any, inference: Inference, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._inference = inference

    _idle_since: float | None = None
    """Since when nothing has been asked; None: something is."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._inference.closed_port is not None and self.server and self.server[1] == self._inference.closed_port:
            self._inference = replace(self._inference, endpoints={})
        self._head_since = clock.now()
        self._overdue = self.loop.call_later(HEAD_SECONDS, self._check_head)

    def _check_head(self) -> None:
        """Nobody keeps a connection by sending nothing, or a head without end; one that rests is closed at last."""
        now = clock.now()
        if self._head_since is not None and now - self._head_since >= HEAD_SECONDS:
            self._refuse(GatewayError("request_timeout", "The request's head did not arrive in time."))
            return
        if self._idle_since is not None and now - self._idle_since >= self.timeout_keep_alive:
            self.transport.close()
            return
        self._overdue = self.loop.call_later(HEAD_SECONDS, self._check_head)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._head_new = False
        if self.cycle is None or self.cycle.response_complete:
            end = data.find(b"\r\n\r\n") % (len(data) + 1)  # all of it, where there is no end
            if data.find(b"h2c", 0, end) >= 0:
                # The parser would end the message at its head, for an upgrade that is never made.
                data = _H2C.sub(b"", data[:end]) + data[end:]
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(GatewayError("invalid_request", "The request is not valid HTTP/1.1."))
        except httptools.HttpParserUpgrade:
            self._refuse(self._no_upgrade())
        if self._in_head and not self._refused:  # what came belongs to it, but for the end of the request before
            self._head_size = len(data) + (0 if self._head_new else self._head_size)
            if self._head_size > MAX_HEAD:
                text = f"The request's head is larger than {MAX_HEAD >> 10} KB."
                self._refuse(GatewayError("invalid_request", text, status=431))

    def _should_upgrade(self) -> bool:
        """For uvicorn: nothing of a request that asks for another protocol is the application's."""
        return True

    def _no_upgrade(self) -> GatewayError:
        if self.parser.get_method() == b"CONNECT":
            return GatewayError("invalid_request", "This is no proxy: CONNECT is not served.")
        path = shown(self.url.partition(b"?")[0].decode("latin-1"))
        text = f"Neither WebSocket nor any other upgrade is served at {path}: send an ordinary HTTP request."
        return GatewayError("unknown_path", text)

    def _refuse(self, error: GatewayError) -> None:
        """The last answer of this connection: in the place of the request that cannot be read, after all before it."""
        self._refused, self._head_since = True, None
        headers = headers_of(self.headers or ())
        own = request_id(headers)
        line = {"id": own, "status": error.status, "code": error.code, "error": error.message}
        self._inference.tell(self.client[0] if self.client else "", headers, line)
        answer = _whole(error, own)
        if not self._in_head and self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()  # its head was fine, and it waits for its turn
            self._in_head = True
        if self.cycle is None or self.cycle.response_complete:
            self._end(answer)
        elif self._in_head:
            self.pipeline.appendleft((_Refusal(partial(self._end, answer)), self.app))  # type: ignore[arg-type]
        else:
            if not self.cycle.response_started:
                self.transport.write(answer)
            self.transport.close()

    def _end(self, answer: bytes) -> None:
        """Give a last answer, and close once the caller has had time to take it."""
        self.transport.write(answer)
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self._overdue.cancel()
        self._overdue = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def on_message_begin(self) -> None:
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._in_head = self._head_new = True
        self._head_since, self._idle_since = clock.now(), None

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # refused at once
        self._in_head, self._head_since = False, None
        endpoint = self._endpoint()
        headers = headers_of(self.headers) if endpoint is not None else {}
        if endpoint is None or b"origin" in headers:
            self._by_asgi()
            return
        keep_alive = self.parser.should_keep_alive()
        before, exchange = self.cycle, NativeExchange(self._inference, endpoint, headers, self, keep_alive)
        self.cycle = exchange  # type: ignore[assignment]
        if before is None or before.response_complete:
            self._start_asgi_task(exchange, self.app)  # type: ignore[arg-type]
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def _by_asgi(self) -> None:
        """uvicorn's own way; only here its scope is wanted."""
        url, headers, expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expected
        self.headers += headers
        super().on_headers_complete()
        self.scope["extensions"] = {SCOPE_KEY: Line(self, self.cycle)}  # type: ignore[dict-item]

    def on_body(self, body: bytes) -> None:
        if isinstance(self.cycle, NativeExchange) and not self.cycle.response_complete:
            self.cycle.got(body)
        else:
            super().on_body(body)

    def on_response_complete(self) -> None:
        """What uvicorn does, without a timer for each request: `_check_head` looks after connections that rest."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._idle_since = clock.now()

    def _endpoint(self) -> Endpoint | None:
        """The endpoint of an ordinary inference call; None for whatever is the least bit unusual: ASGI has it."""
        endpoint = self._inference.endpoints.get(self.url)
        if endpoint is None or self.parser.get_method() != b"POST" or self.parser.get_http_version() != "1.1":
            return None
        return endpoint

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._overdue.cancel()
        if self.on_lost is not None:
            self.on_lost()
        self.pipeline.clear()
        for name in ("parser", "cycle", "scope"):  # they hold this connection: nothing for the garbage collector
            setattr(self, name, None)


class _Refusal:
    """Stands in uvicorn's queue for a request that could not be read."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self._answer = answer

    async def run_asgi(self, app: Any) -> None:
        """What uvicorn runs when it is its turn."""
        self._answer()


def _whole(error: GatewayError, own: str) -> bytes:
    """A last answer's bytes; `own`: the request's id."""
    body = error_body(error)
    lines = [
        (b"x-request-id", own.encode()),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        *error_headers(error),
    ]
    status = b"HTTP/1.1 %d %b\r\n" % (error.status, HTTPStatus(error.status).phrase.encode())
    return status + b"".join(b"%b: %b\r\n" % line for line in lines) + b"\r\n" + body


def settings(application: Any, inference: Inference, **options: Any) -> uvicorn.Config:
    """How the web server runs the application and, below it, inference calls. `options` are uvicorn's own."""
    return uvicorn.Config(
        application,
        http=partial(Connection, inference=inference),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,  # above the usual 60 s of a load balancer in front
        **options,
    )


class WebServer(uvicorn.Server):
    """uvicorn's server; a signal ends it in good order, and is not raised again afterwards: the exit code tells."""

    def __init__(
        self,
        config: uvicorn.Config,
        notice_seconds: Callable[[], float] = lambda: 0.0,
        drain_seconds: float | None = None,
    ) -> None:
        """`notice_seconds`: how long the listener stays open after the first signal; `drain_seconds`: from that signal
        on, that included, until calls that still run are ended (None: they never are)."""
        super().__init__(config)
        self._notice_seconds = notice_seconds
        self._drain_seconds = drain_seconds
        self._signalled: float | None = None
        self.ready = asyncio.Event()
        """Requests are answered."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn.Server."""
        await super().startup(sockets)
        self.ready.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First not ready, then, once whoever balances the load has seen it, no more connections, and the end of the
        calls that run is waited for. A second signal waits for nothing."""
        if self._signalled is not None:
            self.should_exit = self.force_exit = True
            self._end_calls()
            return
        self._signalled = clock.now()
        delay = self._notice_seconds() if self.started else 0.0
        asyncio.get_running_loop().call_later(delay, setattr, self, "should_exit", True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn.Server; the application is told also where running calls are not waited for."""
        if self.force_exit:
            self._end_calls()
        elif self._signalled is not None and self._drain_seconds is not None:
            left = self._signalled + self._drain_seconds - clock.now()
            self.config.timeout_graceful_shutdown = max(0.0, left)  # type: ignore[assignment]
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()

    def _end_calls(self) -> None:
        """Each tells its caller so."""
        for task in self.server_state.tasks:
            task.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM while serving."""
        loop = asyncio.get_running_loop()
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.handle_exit, number, None)
        except (NotImplementedError, RuntimeError, ValueError):
            pass  # not the main thread: whoever runs this loop sets `should_exit`
        yield
