"""The client seam, and the one module that imports an HTTP client library.

Requests to an upstream go through the own pooled client (`pool`); where the configuration names a proxy, through httpx2
behind the same method. Small control-plane requests (model lists, health) use `fetch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import Protocol

import httpx2

from gateway import clock
from gateway.call import Incoming
from gateway.config.runtime import Target
from gateway.errors import UpstreamFailure


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
    }
)
"""Most specific first; every exception of the library has a row by its class or a base of it (a test asks)."""


def failure_of(error: Exception) -> UpstreamFailure:
    """Our failure for one of the library's exceptions."""
    cause, detail = next(FAILURES[c] for c in type(error).__mro__ if c in FAILURES)
    return UpstreamFailure(cause, detail)


class ProxiedClient:
    """The same seam through an HTTP or SOCKS proxy, by httpx2."""

    def __init__(self, target: Target, proxy: str, connections: int = 256) -> None:
        self._target = target
        limits = httpx2.Limits(max_connections=connections, keepalive_expiry=4.0)
        self._client = httpx2.AsyncClient(proxy=proxy, limits=limits, trust_env=False, follow_redirects=False)
        self.busy = 0

    async def send(self, request: bytes, body: bytes, connect: float, deadline: float) -> Incoming:
        """See `Client`."""
        line, *lines = request.decode("latin-1").strip().split("\r\n")
        method, path, _ = line.split(" ")
        headers = dict(header.split(": ", 1) for header in lines)
        remaining = max(0.001, deadline - clock.now())
        timeout = httpx2.Timeout(remaining, connect=min(connect, remaining), pool=min(5.0, remaining))
        address = self._target.url.removesuffix(self._target.prefix) + path
        outgoing = self._client.build_request(method, address, headers=headers, content=body, timeout=timeout)
        self.busy += 1
        try:
            return _Proxied(self, await self._client.send(outgoing, stream=True))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            self.busy -= 1
            raise failure_of(error) from None
        except BaseException:
            self.busy -= 1
            raise

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class _Proxied:
    """An httpx2 response as `call.Incoming`."""

    def __init__(self, owner: ProxiedClient, response: httpx2.Response) -> None:
        self._owner = owner
        self._response = response
        self._pieces = response.aiter_bytes()
        self._closing: asyncio.Task[None] | None = None
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.raw}

    async def read(self, deadline: float) -> bytes:
        """See `call.Incoming`."""
        try:
            async with asyncio.timeout(max(0.0, deadline - clock.now())):
                return await anext(self._pieces, b"")
        except TimeoutError:
            raise UpstreamFailure("timeout", "no more of the answer in time") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise failure_of(error) from None

    def close(self, almost_over: bool = False) -> None:
        """See `call.Incoming`."""
        if self._closing is None:
            self._owner.busy -= 1
            self._closing = asyncio.get_running_loop().create_task(self._response.aclose())


async def fetch(
    url: str,
    api_key: str | None = None,
    proxy: str | None = None,
    seconds: float = 5.0,
) -> tuple[int, bytes]:
    """Status and body (at most 4 MB) of one GET. Raises UpstreamFailure."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    timeout = httpx2.Timeout(seconds, connect=seconds)
    async with AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(httpx2.AsyncClient(proxy=proxy, trust_env=False, timeout=timeout))
            response = await stack.enter_async_context(client.stream("GET", url, headers=headers))
            body = b""
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > 4 << 20:
                    raise UpstreamFailure("bad_response", "a list of unreasonable size")
            return response.status_code, body
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise failure_of(error) from None
