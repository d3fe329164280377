"""An upstream's answer that a test holds in its hands, and a caller that keeps what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gateway import clock
from gateway.call import Answer, Attempt, Call
from gateway.config.runtime import GatewaySettings, Timeouts
from gateway.errors import GatewayError, UpstreamFailure
from gateway.relay.relay import deliver, hold
from tests.unit.building import a_call, a_model, a_runtime

PLAIN = b'{"model":"auto","messages":[]}'
STREAM = b'{"model":"auto","messages":[],"stream":true}'
WITH_USAGE = b'{"model":"auto","messages":[],"stream":true,"stream_options":{"include_usage":true}}'
ATTEMPT = Attempt(a_model(), "test")
LATER = 60.0
"""Seconds from now that no test ever waits for."""


@dataclass
class Pieces:
    """`call.Incoming`: each read gives the next piece or raises it; after the last one the answer is over."""

    pieces: Iterable[bytes | UpstreamFailure]
    status: int = 200
    headers: dict[bytes, bytes] = field(default_factory=dict)
    deadlines: list[float] = field(default_factory=list)
    """Of each read."""
    closed: list[bool] = field(default_factory=list)
    """`almost_over` of each close."""

    def __post_init__(self) -> None:
        self._left = iter(self.pieces)

    async def read(self, deadline: float) -> bytes:
        self.deadlines.append(deadline)
        piece = next(self._left, b"")
        if isinstance(piece, UpstreamFailure):
            raise piece
        return piece

    def offer(self, take: Callable[[bytes], bool]) -> None:
        self.take = take

    def close(self, almost_over: bool = False) -> None:
        self.closed.append(almost_over)


@dataclass
class Caller:
    """As much of `call.Exchange` as the relay uses."""

    started: list[tuple[bytes, int | None]] = field(default_factory=list)
    writes: list[bytes] = field(default_factory=list)
    ended: bool = False
    slow: bool = False
    """It takes nothing at once."""

    async def start(self, call: Call, content_type: bytes, length: int | None) -> None:
        self.started.append((content_type, length))

    async def write(self, data: bytes) -> None:
        assert data, "an empty chunk would end the answer"
        self.writes.append(data)

    def pass_on(self, data: bytes) -> bool:
        if self.slow:
            return False
        self.writes.append(data)
        return True

    async def end(self, data: bytes = b"") -> None:
        self.writes.append(data)
        self.ended = True

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)


def asked(body: bytes = WITH_USAGE, **timeouts: float) -> Call:
    """A call that has just come in."""
    limits = Timeouts(**timeouts)
    return a_call(body, runtime=a_runtime(gateway=GatewaySettings(timeouts=limits)), arrived=clock.now())


async def held(call: Call, incoming: Pieces, first_event: float = LATER) -> Answer:
    """The committed answer. Raises UpstreamFailure."""
    return await hold(call, Attempt(a_model(), "default"), incoming, clock.now() + first_event)


async def relayed(call: Call, incoming: Pieces) -> tuple[Caller, GatewayError | None]:
    """Hold and deliver; what the caller got, and the error that ended it."""
    answer, caller = await held(call, incoming), Caller()
    try:
        await deliver(call, answer, caller, lambda: None)  # type: ignore[arg-type]
    except GatewayError as error:
        return caller, error
    finally:
        answer.close()
    return caller, None


def relay(pieces: Iterable[bytes | UpstreamFailure], body: bytes = WITH_USAGE) -> tuple[Caller, GatewayError | None]:
    """`relayed` in a loop of its own."""
    return asyncio.run(relayed(asked(body), Pieces(pieces)))
