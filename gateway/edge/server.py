"""The web server: uvicorn's, plus the two things that ASGI does not tell an application."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

SCOPE_KEY = "turnout.connection"


class Connection(HttpToolsProtocol):
    """Tells the exchange on it that the caller left."""

    on_lost: Callable[[], None] | None = None
    """Called once when the caller's connection is gone."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.scope["extensions"] = {SCOPE_KEY: Line(self, self.cycle)}  # type: ignore[dict-item]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()


class Line:
    """One request on a connection (several may be queued there)."""

    __slots__ = ("_connection", "_cycle")

    def __init__(self, connection: Connection, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle

    @property
    def body_complete(self) -> bool:
        """All of the request's body has arrived."""
        return not self._cycle.more_body

    def on_lost(self, callback: Callable[[], None] | None) -> None:
        """Whom to tell when the caller's connection is gone."""
        self._connection.on_lost = callback

    def drop(self) -> None:
        """Close at once: the caller sees that the answer is not whole."""
        self._cycle.disconnected = True
        self._connection.transport.abort()


def line_of(scope: Any) -> Line:
    """The line behind an ASGI scope."""
    line: Line = scope["extensions"][SCOPE_KEY]
    return line


def settings(application: Any, **options: Any) -> uvicorn.Config:
    """How the web server runs the application. `options` are uvicorn's own (host, port, fd, ...)."""
    return uvicorn.Config(
        application,
        http=Connection,
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

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        """Requests are answered."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn.Server."""
        await super().startup(sockets)
        self.ready.set()

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
