"""The steps of a script. A step is whatever can be called as `await step(exchange)`: these classes, or a function.

upstream.script(Reply(b'{"ok":true}'))
upstream.script(Sse([chunk("Hel"), WaitFor(event), chunk("lo"), Reset()]))
upstream.script(Send(b"HTTP/1.1 200 OK\\r\\n"), Pause(0.1), Send(b"\\r\\n"), Close())
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import responses
from typing import TYPE_CHECKING, Literal

from tests.fakes.wire import Headers, find_header, header_pairs, render_head

if TYPE_CHECKING:
    from tests.fakes.upstream import Exchange

Step = Callable[["Exchange"], Awaitable[object]]
Framing = Literal["length", "chunked", "close"]


@dataclass(frozen=True, slots=True)
class Send:
    """One write of exactly these bytes.

    `separate`: go on only when the peer has read them, so that no other write can melt into this one.
    """

    data: bytes
    separate: bool = True

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.send(self.data, separate=self.separate)


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for some seconds."""

    seconds: float

    async def __call__(self, exchange: Exchange) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Go on when the test sets the event."""

    event: asyncio.Event

    async def __call__(self, exchange: Exchange) -> None:
        await self.event.wait()


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection in the ordinary way (FIN) after all that was sent."""

    async def __call__(self, exchange: Exchange) -> None:
        exchange.close()


@dataclass(frozen=True, slots=True)
class Reset:
    """End the connection by RST; what the peer has not read yet is lost to it."""

    async def __call__(self, exchange: Exchange) -> None:
        exchange.reset()


@dataclass(frozen=True, slots=True)
class Hang:
    """Do nothing until the peer leaves (which ends every script)."""

    async def __call__(self, exchange: Exchange) -> None:
        await asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True)
class StallRead:
    """Anywhere in a script: the request's body is not read at all, and the script starts when the head has come.

    The kernel still takes a few bytes: give `Upstream(receive_buffer=...)` to keep them few. A peer that leaves is
    noticed only by what is written to it.
    """

    async def __call__(self, exchange: Exchange) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. `body` is bytes, or a sequence of pieces: each bytes object is one write, steps run in between.

    `framing`: by content-length, chunked (one chunk per piece), or by closing. A `content-length` or
    `transfer-encoding` among `headers` replaces the framing's own, true or not. `gap`: seconds before each piece
    but the first. `gzip` compresses, flushed after each piece. `keep` False: `connection: close`, then FIN.
    `separate`: see `Send`; leave it off where thousands of pieces or a peer that does not read are the point.
    """

    body: bytes | Sequence[bytes | Step] = b""
    status: int = 200
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    framing: Framing = "length"
    gap: float = 0.0
    gzip: bool = False
    keep: bool = True
    separate: bool = True
    reason: str | None = None

    async def __call__(self, exchange: Exchange) -> None:
        pieces = list(self._pieces())
        await exchange.send(self._head(pieces), separate=self.separate)
        for number, piece in enumerate(pieces):
            if number and self.gap:
                await asyncio.sleep(self.gap)
            if isinstance(piece, bytes):
                await exchange.send(self._framed(piece), separate=self.separate)
            else:
                await piece(exchange)
            if exchange.ended:
                return
        await exchange.send(self._end(), separate=False)
        if self.framing == "close" or not self.keep:
            exchange.close()

    def wire(self) -> bytes:
        """The answer's bytes as they go out, for `split`; its body must have no steps in it."""
        pieces = list(self._pieces())
        return self._head(pieces) + b"".join(map(self._framed, _only_bytes(pieces))) + self._end()

    def _pieces(self) -> Iterator[bytes | Step]:
        pieces = [self.body] if isinstance(self.body, bytes) else self.body
        return _compressed(pieces) if self.gzip else iter(pieces)

    def _head(self, pieces: Sequence[bytes | Step]) -> bytes:
        headers = header_pairs(self.headers)
        defaults = [("content-type", "application/json"), *self._framing_header(headers, pieces)]
        defaults += [("content-encoding", "gzip")] * self.gzip
        defaults += [("connection", "close")] * (not self.keep or self.framing == "close")
        headers += [(name, value) for name, value in defaults if find_header(headers, name) is None]
        reason = responses.get(self.status, "") if self.reason is None else self.reason
        return render_head(f"HTTP/1.1 {self.status} {reason}", headers)

    def _framing_header(self, given: Headers, pieces: Sequence[bytes | Step]) -> Headers:
        if find_header(given, "content-length") or find_header(given, "transfer-encoding") or self.status in (204, 304):
            return []
        length = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
        choices: dict[Framing, Headers] = {
            "length": [("content-length", str(length))],
            "chunked": [("transfer-encoding", "chunked")],
            "close": [],
        }
        return choices[self.framing]

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self.framing == "chunked" and piece else piece

    def _end(self) -> bytes:
        return b"0\r\n\r\n" if self.framing == "chunked" else b""


def Sse(
    events: Sequence[bytes | Step],
    *,
    gap: float = 0.0,
    status: int = 200,
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    framing: Framing = "chunked",
    gzip: bool = False,
    keep: bool = True,
    separate: bool = True,
) -> Reply:
    """A `Reply` that is an event stream: one write per event, `gap` seconds apart."""
    pairs = header_pairs(headers)
    if find_header(pairs, "content-type") is None:
        pairs.append(("content-type", "text/event-stream"))
    return Reply(events, status, pairs, framing=framing, gap=gap, gzip=gzip, keep=keep, separate=separate)


def split(data: bytes, sizes: int | Iterable[int]) -> list[bytes]:
    """Cut `data` every `sizes` bytes, or after each of the given sizes (the rest is the last piece)."""
    steps = [sizes] * -(-len(data) // sizes) if isinstance(sizes, int) else list(sizes)
    pieces, start = [], 0
    for size in steps:
        pieces.append(data[start : start + size])
        start += size
    pieces.append(data[start:])
    return [piece for piece in pieces if piece]


def sends(data: bytes, sizes: int | Iterable[int]) -> list[Send]:
    """`split`, as steps: `upstream.script(*sends(Sse(events).wire(), 1))` writes an answer byte by byte."""
    return [Send(piece) for piece in split(data, sizes)]


def _compressed(pieces: Sequence[bytes | Step]) -> Iterator[bytes | Step]:
    packer = zlib.compressobj(wbits=31)
    last = max((number for number, piece in enumerate(pieces) if isinstance(piece, bytes)), default=-1)
    for number, piece in enumerate(pieces):
        if isinstance(piece, bytes):
            yield packer.compress(piece) + packer.flush(zlib.Z_FINISH if number == last else zlib.Z_SYNC_FLUSH)
        else:
            yield piece


def _only_bytes(pieces: Sequence[bytes | Step]) -> Iterator[bytes]:
    for piece in pieces:
        if not isinstance(piece, bytes):
            raise TypeError(f"{piece!r} is a step and has no bytes")
        yield piece
