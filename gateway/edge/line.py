"""One request on a caller's connection: what the web server knows and ASGI does not tell."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

SCOPE_KEY = "turnout.line"


class Wire(Protocol):
    """The connection."""

    on_lost: Callable[[], None] | None
    transport: Any


class Cycle(Protocol):
    """The request on it."""

    more_body: bool
    disconnected: bool


class Line:
    """One request on a connection (several may be queued there)."""

    __slots__ = ("_connection", "_cycle")

    def __init__(self, connection: Wire, cycle: Cycle) -> None:
        self._connection = connection
        self._cycle = weakref.proxy(cycle)  # which holds this line

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


def headers_of(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Names in lower case. Values of a repeated one are joined by commas (RFC 9110): no check sees only one of them."""
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    values: dict[bytes, list[bytes]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: b", ".join(given) for name, given in values.items()}


def line_of(scope: Any) -> Line:
    """The line behind an ASGI scope."""
    line: Line = scope["extensions"][SCOPE_KEY]
    return line
