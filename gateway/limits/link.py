"""One connection to Redis: many commands under way, answers in their order, one timer for all of them.

Writing is synchronous: a command is handed to the socket before `tell` returns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, cast

import hiredis

from gateway import clock
from gateway.config.redis_url import Address
from gateway.limits.store import StoreDown

CONNECT = 0.25
ANSWER = 0.2
_TICK = 0.02
"""Seconds. An answer is late when two ticks in a row have missed it, so that a pause of this process is not taken for
one of Redis: nobody waits longer than ANSWER and two ticks, a quarter of a second."""
MOST = 10_000

Heard = Callable[[object], None]
"""Gets an answer of Redis (an error of it as ReplyError), or StoreDown: the connection ended before it came."""


def pack(*parts: str | int | bytes) -> bytes:
    """A command as it travels."""
    return cast("bytes", hiredis.pack_command(parts))  # type: ignore[arg-type]


@dataclass(slots=True, eq=False)
class _Asked:
    """One command under way."""

    since: float
    heard: Heard
    """Gets the answer that nobody waits for."""
    waiting: asyncio.Future[object] | None
    given_up: bool = False

    def fail(self, why: str) -> None:
        """Whoever waits, waits no longer."""
        self.given_up = True
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(StoreDown(why))


class Link(asyncio.Protocol):
    """A connection. `down`: told why, when it ends or an answer is late (takes longer than `answer` seconds); a late
    answer still counts when it comes. `most`: commands under way."""

    def __init__(self, down: Callable[[str], None], answer: float = ANSWER, most: int = MOST) -> None:
        self._down = down
        self._answer = answer
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._nothing = object()
        self._reader = hiredis.Reader(notEnoughData=self._nothing)
        self._asked: deque[_Asked] = deque()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = clock.now()
        self._suspect = False
        self.lost = False

    @classmethod
    async def open(
        cls, address: Address, down: Callable[[str], None], answer: float = ANSWER, most: int = MOST
    ) -> Link:
        """Connect and log in. Raises StoreDown."""
        async with AsyncExitStack() as undo:
            link = cls(lambda why: None, answer, most)  # until it stands, the error tells
            undo.callback(link.close)
            try:
                async with asyncio.timeout(CONNECT):
                    await link._connect(address)
            except TimeoutError:
                raise StoreDown("no connection in time") from None
            except (OSError, UnicodeError) as fault:
                raise StoreDown(f"no connection: {fault}") from None
            undo.pop_all()
            link._down = down
            return link

    async def _connect(self, address: Address) -> None:
        if address.path:
            await self._loop.create_unix_connection(lambda: self, address.path)
        else:
            await self._loop.create_connection(lambda: self, address.host, address.port, ssl=address.tls)
        for command in address.greeting():
            answer = await self.ask(pack(*command), lambda _: None)
            if isinstance(answer, hiredis.ReplyError):
                raise StoreDown(f"{command[0]}: {answer}")

    @property
    def silent(self) -> float:
        """Seconds for which something has gone unanswered and nothing was heard."""
        return clock.now() - max(self._heard_at, self._asked[0].since) if self._asked else 0.0

    async def ask(self, command: bytes, unheard: Heard, since: float | None = None) -> object:
        """The answer; an error of Redis as ReplyError. Raises StoreDown: it could not be sent, or nothing came in time
        (counted from `since`). If it was sent and the caller no longer waits, `unheard` gets the answer."""
        waiter: asyncio.Future[object] = self._loop.create_future()
        self._send(command, _Asked(clock.now() if since is None else since, unheard, waiter))
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                unheard(waiter.result())  # it came in the same moment
            raise

    def tell(self, command: bytes, heard: Heard) -> None:
        """Send without waiting. Raises StoreDown: it could not be sent."""
        self._send(command, _Asked(clock.now(), heard, None))

    def close(self, why: str = "closed") -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        self._end(why)

    def _send(self, command: bytes, asked: _Asked) -> None:
        if self.lost or self._transport is None:
            raise StoreDown("no connection")
        if len(self._asked) >= self._most:
            raise StoreDown("too many commands under way")
        self._asked.append(asked)
        self._transport.write(command)
        if self._timer is None:
            self._timer = self._loop.call_later(_TICK, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._asked:
            return
        self._timer = self._loop.call_later(_TICK, self._tick)
        late = clock.now() - self._answer
        if not any(a.since <= late for a in self._asked if not a.given_up):
            self._suspect = False
        elif not self._suspect:
            self._suspect = True
        else:
            self._suspect = False
            self._give_up("no answer in time")

    def _give_up(self, why: str) -> None:
        for asked in self._asked:
            asked.fail(why)
        self._down(why)

    def _end(self, why: str) -> None:
        if self.lost:
            return
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
        asked, self._asked = self._asked, deque()
        for one in asked:
            one.fail(why)
            one.heard(StoreDown(why))
        self._down(why)

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        if self.lost:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._heard_at = clock.now()
        self._suspect = False
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not self._nothing:
                self._answered(answer)
        except hiredis.ProtocolError:
            self.close("it does not speak like Redis")

    def _answered(self, answer: Any) -> None:
        if not self._asked:
            self.close("it answers what nobody asked")
            return
        asked = self._asked.popleft()
        if asked.waiting is None or asked.waiting.done():
            asked.heard(answer)
        else:
            asked.waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._end(f"connection lost: {exc}" if exc is not None else "connection closed by Redis")
