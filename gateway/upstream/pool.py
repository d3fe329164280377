"""Connections to one address: kept alive, bounded, checked before use."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gateway import clock
from gateway.call import Incoming
from gateway.clock import Deadlines
from gateway.config.runtime import Target
from gateway.errors import UpstreamFailure
from gateway.upstream.h1 import Answering, Connection


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How a pool keeps its connections."""

    connections: int = 1024
    queue_seconds: float = 5.0
    """How long a call may wait for a free connection."""
    idle_seconds: float = 4.0
    """Below the 5 s after which uvicorn, and so vLLM, closes an idle connection: no race with its close."""
    age_seconds: float = 300.0
    """No connection is used for longer, so that changed DNS entries are noticed."""


class Pool:
    """The connections to one target."""

    def __init__(self, target: Target, deadlines: Deadlines, limits: PoolLimits, tls: ssl.SSLContext | None) -> None:
        self._target = target
        self._deadlines = deadlines
        self._limits = limits
        self._tls = tls
        self._idle: deque[Connection] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Calls in order of arrival; a result says that a connection is theirs."""
        self._promised = 0
        """Connections given to calls that have not woken yet."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._open: set[Connection] = set()

    @property
    def open(self) -> int:
        """Connections that exist or are being made."""
        return len(self._open)

    @property
    def busy(self) -> int:
        """Connections with a request on them."""
        return len(self._open) - len(self._idle)

    async def send(self, request: bytes, body: bytes, connect: float, deadline: float) -> Incoming:
        """Send one request and wait for the head of its answer.

        `connect`: seconds for a new connection; `deadline`: when the head has to be there. A kept connection that
        breaks before any byte of the answer is replaced once by a new one: its peer had closed it unseen.
        Raises UpstreamFailure connect, pool, timeout, cut, bad_response.
        """
        mine = self._room() and not self._waiting
        connection = (self._kept() if mine else None) or await self._acquire(connect, deadline)
        while True:
            try:
                connection.send(request, body)
                await connection.head(deadline)
                return Answering(connection)
            except UpstreamFailure as failure:
                connection.close()
                if failure.cause != "cut" or not connection.reused or connection.answered:
                    raise
            except BaseException:
                connection.close()
                raise
            await self._slot(deadline)
            if self._idle and self.open >= self._limits.connections:
                self._idle.popleft().abort()  # it was kept like the one that broke; the new one takes its place
            connection = await self._connect(connect, deadline)

    async def _acquire(self, connect: float, deadline: float) -> Connection:
        await self._slot(deadline)
        return self._kept() or await self._connect(connect, deadline)

    def _kept(self) -> Connection | None:
        """A kept connection that can be used."""
        now = clock.now()
        born, used = now - self._limits.age_seconds, now - self._limits.idle_seconds
        while self._idle:
            connection = self._idle.pop()
            if connection.alive and connection.opened > born and connection.idle_since > used:
                connection.reused = True
                return connection
            connection.abort()
        return None

    async def _slot(self, deadline: float) -> None:
        """Wait, in order of arrival, until a connection is idle or another one may be made."""
        if self._room() and not self._waiting:
            return
        until = min(deadline, clock.now() + self._limits.queue_seconds)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await self._deadlines.wait(future, until)
        except BaseException as error:
            self._give_up(future)
            if isinstance(error, TimeoutError):
                raise UpstreamFailure("pool", "all connections are taken") from None
            raise
        self._promised -= 1

    def _room(self) -> bool:
        return self.busy + self._promised < self._limits.connections

    def _give_up(self, future: asyncio.Future[None]) -> None:
        """A call waits no longer; what was promised to it goes to the next one."""
        if future in self._waiting:
            self._waiting.remove(future)
        elif not future.cancelled() and future.exception() is None:
            self._promised -= 1
        self._admit()

    async def _connect(self, connect: float, deadline: float) -> Connection:
        connection = Connection(self._deadlines, self._release)
        self._open.add(connection)
        loop = asyncio.get_running_loop()
        seconds = max(0.0, min(connect, deadline - clock.now()))
        try:
            async with asyncio.timeout(seconds):
                await loop.create_connection(
                    lambda: connection,
                    self._target.host,
                    self._target.port,
                    ssl=self._tls,
                    server_hostname=self._target.host if self._tls else None,
                )
            return connection
        except BaseException as error:
            connection.gone()
            if isinstance(error, TimeoutError):
                raise UpstreamFailure("connect", f"no connection within {seconds:.3g} s") from None
            if isinstance(error, OSError | UnicodeError):
                raise _failure(error) from None
            raise

    def _release(self, connection: Connection, free: bool) -> None:
        """A connection is free again, or gone; called by itself."""
        if not free:
            self._open.discard(connection)
            if connection in self._idle:
                self._idle.remove(connection)
        elif self._closed:
            connection.abort()
        else:
            self._idle.append(connection)
            if self._sweeper is None:
                self._sweep()
        self._admit()

    def _admit(self) -> None:
        """Give what is free to the calls that wait."""
        while self._waiting and self._room():
            future = self._waiting.popleft()
            if not future.done():
                self._promised += 1
                future.set_result(None)

    def _sweep(self) -> None:
        """Close what has been idle for too long; runs while anything is idle."""
        oldest = clock.now() - self._limits.idle_seconds
        for connection in [c for c in self._idle if c.idle_since <= oldest]:
            connection.abort()
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(0.5, self._sweep) if self._idle else None

    def close(self) -> None:
        """Close the connections that nobody uses now, and the others as they become free."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self._open):
            connection.retire()


def _failure(error: OSError | UnicodeError) -> UpstreamFailure:
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return UpstreamFailure("pool", "the gateway has no file descriptor left")  # no fault of the upstream
    return UpstreamFailure("connect", why(error))


def why(error: OSError | UnicodeError) -> str:
    """The reason without the address: `str(error)` would name internal hosts."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message.partition(", ")[0]  # after the comma comes the host
        return f"TLS certificate not trusted ({reason})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({(error.reason or 'handshake').replace('_', ' ').lower()})"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "the host name is not known"
    number = error.errno or next(map(int, re.findall(r"\[Errno (\d+)\]", str(error))), 0)  # of several addresses
    return os.strerror(number).lower() if number else "no connection"


class Pools:
    """One pool per address for the whole process; they outlive a reload of the configuration."""

    def __init__(
        self, limits: PoolLimits = PoolLimits(), tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    ):
        self._limits = limits
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None
        self._deadlines = Deadlines()
        self._pools: dict[Target, Pool] = {}

    def get(self, target: Target) -> Pool:
        """The pool of one target, made at its first use."""
        pool = self._pools.get(target)
        if pool is None:
            pool = self._pools[target] = Pool(target, self._deadlines, self._limits, self.context(target))
        return pool

    def context(self, target: Target) -> ssl.SSLContext | None:
        """How TLS to a target is verified; None: it speaks plain HTTP."""
        if target.scheme == "http":
            return None
        if self._tls is None:
            self._tls = self._make_tls()  # reads the system's certificates: 20 ms, once
        return self._tls

    def keep(self, targets: frozenset[Target]) -> None:
        """Close the pools of all other targets; answers in flight on them still run to their end."""
        for target in [t for t in self._pools if t not in targets]:
            self._pools.pop(target).close()

    def close(self) -> None:
        """Close every pool."""
        self.keep(frozenset())
