"""What the scripted upstream keeps: the requests it got, its connections' counters, the scripts that wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.steps import StallRead, Step
from tests.fakes.wire import Headers, find_header


@dataclass(eq=False)
class Request:
    """One request as it came. It is listed as soon as its head is here; `received` says that its body is, too."""

    number: int
    """Order of arrival, from 0."""
    connection: int
    """Which connection it came on, from 0."""
    head: bytes
    """To the blank line, exactly."""
    method: str
    target: str
    """As sent, with the query."""
    headers: Headers
    content: bytearray = field(default_factory=bytearray)
    """The body so far, chunking undone."""
    written: int = 0
    """Bytes of the answer that the kernel took; exact to one write if the peer left within it."""
    received: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """The script has ended, in whatever way."""
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """The peer left before the script had ended."""
    reset: bool = False
    """It left by RST, as far as could be seen."""

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def body(self) -> bytes:
        return bytes(self.content)

    def header(self, name: str) -> str | None:
        """The first value of that name, in any spelling."""
        return find_header(self.headers, name)

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class Connections:
    """Counters over the upstream's life."""

    open: int = 0
    total: int = 0
    peak: int = 0


@dataclass
class Script:
    """Steps for the requests that match; see `Upstream.script`."""

    steps: Sequence[Step]
    path: str | None = None
    times: int | None = 1

    def matches(self, request: Request) -> bool:
        return request.method == "POST" if self.path is None else request.path.endswith(self.path)

    @property
    def reads_body(self) -> bool:
        return not any(isinstance(step, StallRead) for step in self.steps)
