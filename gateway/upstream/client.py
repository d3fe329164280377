"""The client seam, and the one module that imports an HTTP client library.

Requests to an upstream go through the own pooled client (`pool`); where the configuration names a proxy, through httpx2
behind the same method. Small control-plane requests (model lists, health) use `fetch`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import MappingProxyType
from typing import Any, Protocol

import httpx2
import socksio

from gateway import clock
from gateway.call import Incoming
from gateway.clock import Tasks
from gateway.config.runtime import Target
from gateway.errors import UpstreamFailure
from gateway.upstream.coding import Decoder
from gateway.upstream.pool import PoolLimits, why

_MAX_SMALL = 4 << 20
"""Bytes of an answer to `fetch`."""


class Client(Protocol):
    """Sends one request to one target."""

    @property
    def busy(self) -> int:
        """Requests under way."""

    async def send(self, request: bytes, body: bytes, connect: float, deadline: float) -> Incoming:
        """Send `request` (a complete HTTP/1.1 head) and `body`; returns at the answer's head.

        `connect`: seconds to connect; `deadline` (clock.now): when the head must be there. Raises UpstreamFailure.
        """


FAILURES: Mapping[type[Exception], tuple[str, str]] = MappingProxyType(
    {
        httpx2.ConnectTimeout: ("connect", "no connection in time"),
        httpx2.ConnectError: ("connect", "cannot connect"),
        httpx2.ProxyError: ("connect", "the proxy refused"),
        httpx2.PoolTimeout: ("pool", "all connections are taken"),
        httpx2.ReadTimeout: ("timeout", "no answer in time"),
        httpx2.WriteTimeout: ("timeout", "the request was not taken in time"),
        httpx2.ReadError: ("cut", "the connection broke"),
        httpx2.WriteError: ("cut", "the connection broke"),
        httpx2.CloseError: ("cut", "the connection broke"),
        httpx2.RemoteProtocolError: ("cut", "the answer was cut short or is not HTTP"),
        httpx2.DecodingError: ("bad_response", "broken compression"),
        httpx2.TooManyRedirects: ("bad_response", "redirects"),
        httpx2.HTTPError: ("connect", "the request failed"),
        httpx2.InvalidURL: ("connect", "the address is no URL"),
        httpx2.StreamError: ("bad_response", "the answer was read out of turn"),
        httpx2.CookieConflict: ("bad_response", "cookies at odds"),
        socksio.ProtocolError: ("connect", "the proxy does not speak SOCKS5"),  # not wrapped by the library
    }
)
"""Most specific first; every exception of the library has a row by its class or a base of it (a test asks)."""


def failure_of(error: Exception) -> UpstreamFailure:
    """Our failure for one of the library's exceptions; what the system said, where it lies behind it."""
    cause, detail = next(FAILURES[c] for c in type(error).__mro__ if c in FAILURES)
    if isinstance(error, httpx2.ConnectError):
        detail = next((why(e) for e in _behind(error) if isinstance(e, ssl.SSLError | OSError) and e.errno), detail)
    elif isinstance(error, httpx2.ProxyError) and (status := re.match(r"[1-5]\d\d\b", str(error))):
        detail = f"{detail} (HTTP {status[0]})"
    return UpstreamFailure(cause, detail)


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class ProxiedClient:
    """The same seam through an HTTP or SOCKS proxy, by httpx2."""

    def __init__(self, target: Target, proxy: str, limits: PoolLimits, tls: ssl.SSLContext | None) -> None:
        self._origin = target.url.removesuffix(target.prefix)
        self._socks = proxy.startswith("socks")
        self._queue_seconds = limits.queue_seconds
        # Nothing is kept: httpcore2 takes bytes after one answer for the beginning of the next caller's.
        kept = httpx2.Limits(max_connections=limits.connections, max_keepalive_connections=0)
        self._open = partial(_client, proxy, tls, limits=kept)
        self._client: httpx2.AsyncClient | None = None
        self._tasks = Tasks()
        self._retired = False
        self.busy = 0

    async def send(self, request: bytes, body: bytes, connect: float, deadline: float) -> Incoming:
        """See `Client`."""
        remaining = max(0.001, deadline - clock.now())
        limits = httpx2.Timeout(None, connect=min(connect, remaining), pool=min(self._queue_seconds, remaining))
        line, *lines = request.removesuffix(b"\r\n\r\n").split(b"\r\n")
        method, path, _ = line.decode("latin-1").split(" ")
        headers = [(name, value) for name, _, value in (header.partition(b": ") for header in lines)]
        self._client = client = self._client or self._open()
        outgoing = client.build_request(method, self._origin + path, headers=headers, content=body, timeout=limits)
        made: list[Any] = []
        if self._socks:
            outgoing.extensions["trace"] = partial(_note_connection, made)
        self.busy += 1
        try:
            async with _translated(connect=connect), asyncio.timeout(remaining):
                return _Proxied(await client.send(outgoing, stream=True), self._over)
        except BaseException:
            self._left()
            for stream in made:
                await stream.aclose()
            raise

    def _over(self, closing: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(closing)
        self._left()

    def _left(self) -> None:
        self.busy -= 1
        if self._retired:
            self.retire()

    def retire(self) -> None:
        """Close all connections as soon as no answer is being read. A call that still comes opens its own."""
        self._retired = True
        if self._client is not None and not self.busy:
            self._tasks.spawn(self._client.aclose())
            self._client = None

    async def aclose(self) -> None:
        """Close all connections now."""
        await self._tasks.close()
        if self._client is not None:
            await self._client.aclose()


class _Proxied:
    """An httpx2 response as `call.Incoming`."""

    def __init__(self, response: httpx2.Response, over: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._response: httpx2.Response | None = response
        self._over = over
        self._pieces = response.aiter_raw()
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.raw}
        self._decoder = Decoder.of(self.headers)

    async def read(self, deadline: float) -> bytes:
        """See `call.Incoming`."""
        data = await (self._read(deadline) if self._decoder is None else self._decoder.read(self._read, deadline))
        if not data:
            self.close()
        return data

    async def _read(self, deadline: float) -> bytes:
        if self._response is None:
            return b""
        async with _translated("no more of the answer in time"), asyncio.timeout(max(0.0, deadline - clock.now())):
            return await anext(self._pieces, b"")

    def offer(self, take: Callable[[bytes], bool]) -> None:
        """See `call.Incoming`: every byte waits for its read."""

    def close(self, almost_over: bool = False) -> None:
        """See `call.Incoming`."""
        if self._response is not None:
            self._over(_close(self._response, self._pieces))
            self._response = None


@asynccontextmanager
async def _translated(late: str = "no answer in time", connect: float = 0.0) -> AsyncIterator[None]:
    """The library's exceptions as ours. `connect`: the seconds that a connection was given."""
    try:
        yield
    except TimeoutError:
        raise UpstreamFailure("timeout", late) from None
    except httpx2.ConnectTimeout:
        raise UpstreamFailure("connect", f"no connection within {connect:.3g} s") from None
    except tuple(FAILURES) as error:
        raise failure_of(error) from None


async def _note_connection(made: list[Any], event: str, info: Mapping[str, Any]) -> None:
    """Keep hold of a connection to a SOCKS proxy: the library forgets to close one that it cannot use."""
    if event == "socks.connect_tcp.complete":
        made.append(info["return_value"])


async def _close(response: httpx2.Response, pieces: AsyncGenerator[bytes]) -> None:
    with suppress(httpx2.HTTPError, OSError):  # it breaks while it is closed: closed it is
        await pieces.aclose()
        await response.aclose()


def _client(proxy: str | None, tls: ssl.SSLContext | None, **options: Any) -> httpx2.AsyncClient:
    """A client without `tls` trusts nobody: to read the system's certificates costs 20 ms, for nothing over HTTP."""
    verify = tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    none = CookieJar(
        DefaultCookiePolicy(allowed_domains=())
    )  # one caller's cookies must not go out with another's call
    return httpx2.AsyncClient(proxy=proxy, verify=verify, cookies=none, trust_env=False, **options)


async def fetch(
    url: str,
    api_key: str | None = None,
    proxy: str | None = None,
    seconds: float = 5.0,
) -> tuple[int, bytes]:
    """Status and body (at most 4 MB) of one GET. Raises UpstreamFailure."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    tls = ssl.create_default_context() if url.startswith("https:") else None
    async with (
        _translated(f"no answer within {seconds:.3g} s"),
        asyncio.timeout(seconds),
        _client(proxy, tls, timeout=None) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        return response.status_code, await _small(response)


async def _small(response: httpx2.Response) -> bytes:
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MAX_SMALL:
            raise UpstreamFailure("bad_response", "a list of unreasonable size")
    return body
