"""The library behind the seam: its exceptions, its proxies, small requests. What every client does: tests/contract."""

from __future__ import annotations

import asyncio
import gzip
import inspect
from collections.abc import Awaitable

import httpx2
import pytest

from gateway import clock
from gateway.call import Incoming
from gateway.config.base_url import resolve
from gateway.errors import CAUSES, UpstreamFailure
from gateway.upstream.client import FAILURES, ProxiedClient, failure_of, fetch
from gateway.upstream.pool import PoolLimits
from tests.fakes import Authority, Hang, Pause, Reply, Reset, Send, Upstream, WaitFor, refusing_port
from tests.fakes.proxy import Proxy

SOON = 30.0
EXCEPTIONS = [
    value
    for _, value in inspect.getmembers(httpx2, inspect.isclass)
    if issubclass(value, Exception) and not issubclass(value, Warning)
]


async def failure(work: Awaitable[object]) -> tuple[str, str]:
    """Cause and detail."""
    with pytest.raises(UpstreamFailure) as caught:
        await work
    assert "127.0.0.1" not in caught.value.detail
    return caught.value.cause, caught.value.detail


# -- exceptions


@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_every_exception_of_the_library_is_a_failure_of_ours(kind: type[Exception]) -> None:
    failure = failure_of(kind.__new__(kind, "http://internal:1/ sk-secret"))
    assert failure.cause in CAUSES
    assert "internal" not in failure.detail
    assert "secret" not in failure.detail


def test_there_are_exceptions_to_ask_about() -> None:
    assert len(EXCEPTIONS) > 20


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (httpx2.ConnectTimeout, "connect"),
        (httpx2.PoolTimeout, "pool"),
        (httpx2.ReadTimeout, "timeout"),
        (httpx2.ReadError, "cut"),
        (httpx2.RemoteProtocolError, "cut"),
        (httpx2.ProxyError, "connect"),
        (httpx2.UnsupportedProtocol, "connect"),
        (httpx2.DecodingError, "bad_response"),
    ],
)
def test_the_nearest_row_decides(kind: type[Exception], cause: str) -> None:
    assert failure_of(kind.__new__(kind)).cause == cause


def test_rows_name_causes() -> None:
    assert {cause for cause, _ in FAILURES.values()} <= CAUSES.keys()


# -- proxies


def client_for(url: str, proxy: str, **limits: float) -> ProxiedClient:
    return ProxiedClient(resolve(url), proxy, PoolLimits(**limits), Authority().client())  # type: ignore[arg-type]


async def send(client: ProxiedClient, within: float = SOON) -> Incoming:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: upstream\r\ncontent-length: 2\r\n\r\n"
    return await client.send(head, b"{}", 5.0, clock.now() + within)


async def ask(client: ProxiedClient) -> bytes:
    incoming = await send(client)
    out = b""
    while piece := await incoming.read(clock.now() + SOON):
        out += piece
    incoming.close()
    return out


@pytest.mark.parametrize("kind", ["http", "socks"])
async def test_the_proxy_is_asked_and_the_upstream_told_nothing_of_it(upstream: Upstream, kind: str) -> None:
    async with Proxy() as proxy:
        client = client_for(upstream.url, getattr(proxy, kind))
        assert await ask(client)
        await client.aclose()
        assert proxy.asked == [f"127.0.0.1:{upstream.port}"]
        call = await upstream.call()
        assert (call.path, call.header("host"), call.header("proxy-authorization")) == (
            "/v1/chat/completions",
            "upstream",
            None,
        )


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_no_proxy_listens(scheme: str) -> None:
    with refusing_port() as port:
        client = client_for("https://upstream.test", f"{scheme}://127.0.0.1:{port}")
        assert await failure(send(client)) == ("connect", "connection refused")
        assert client.busy == 0
        await client.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 403 blocked by policy of internal-host\r\ncontent-length: 0\r\n\r\n",
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
    ids=["407", "403", "nothing", "garbage"],
)
async def test_a_proxy_that_does_not_connect(answer: bytes) -> None:
    async with Proxy(answer) as proxy:
        client = client_for("https://upstream.test", proxy.http)
        cause, detail = await failure(send(client))
        assert CAUSES[cause].next == "yes"
        assert "internal-host" not in detail
        await client.aclose()


@pytest.mark.parametrize("answer", [b"", b"\x05", b"\x05\xff", b"\x04\x00", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_socks_proxy_that_does_not_connect(answer: bytes) -> None:
    async with Proxy(answer) as proxy:
        client = client_for("http://upstream.test", proxy.socks)
        assert (await failure(send(client)))[0] == "connect"
        assert client.busy == 0
        await client.aclose()


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_proxy_that_never_answers(scheme: str) -> None:
    """Its connection ends with the call."""
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        client = client_for("https://upstream.test", f"{scheme}://127.0.0.1:{port}")
        assert (await failure(send(client, within=0.2)))[0] == "timeout"
        async with asyncio.timeout(SOON):
            await left.wait()
        await client.aclose()


@pytest.mark.parametrize("kind", ["http", "socks"])
async def test_a_proxy_that_cannot_reach_the_upstream(kind: str) -> None:
    with refusing_port() as port:
        async with Proxy() as proxy:
            client = client_for(f"https://127.0.0.1:{port}", getattr(proxy, kind))
            cause, detail = await failure(send(client))
            assert (cause, detail.removesuffix(" (HTTP 502)")) == ("connect", "the proxy refused")
            await client.aclose()


async def test_a_certificate_is_verified_through_a_proxy() -> None:
    async with Upstream(tls=Authority().server()) as upstream, Proxy() as proxy:
        client = client_for(upstream.url, proxy.http)
        assert (await failure(send(client)))[0] == "connect"
        assert upstream.count() == 0
        await client.aclose()


async def test_a_retired_client_closes_once_nothing_is_read(upstream: Upstream) -> None:
    gate = asyncio.Event()
    async with Proxy() as proxy, asyncio.timeout(SOON):
        client = client_for(upstream.url, proxy.http)
        upstream.script(Reply([b"a", WaitFor(gate), b"b"], framing="chunked"))
        incoming = await send(client)
        client.retire()
        await asyncio.sleep(0)
        assert (client.busy, upstream.connections.open) == (1, 1)
        gate.set()
        assert b"".join([await incoming.read(clock.now() + SOON) for _ in range(2)]) == b"ab"
        assert await incoming.read(clock.now() + SOON) == b""
        await upstream.until_open(0)
        assert await ask(client)  # a call that began before the change still gets its answer
        await upstream.until_open(0)
        await client.aclose()


async def test_a_retired_client_without_calls_closes_at_once(upstream: Upstream) -> None:
    async with Proxy() as proxy, asyncio.timeout(SOON):
        client = client_for(upstream.url, proxy.http)
        client.retire()
        assert await ask(client)
        await upstream.until_open(0)
        await client.aclose()


async def test_closing_ends_what_is_under_way(upstream: Upstream) -> None:
    upstream.script(Reply([b"a", Hang()], framing="chunked"))
    async with Proxy() as proxy, asyncio.timeout(SOON):
        client = client_for(upstream.url, proxy.http)
        incoming = await send(client)
        incoming.close()
        await client.aclose()
        await upstream.until_open(0)


# -- small requests


async def test_fetch(upstream: Upstream) -> None:
    status, body = await fetch(f"{upstream.url}/models", "sk-up")
    assert (status, b'"fake"' in body) == (200, True)
    (asked,) = upstream.requests
    assert (asked.method, asked.path, asked.header("authorization")) == ("GET", "/v1/models", "Bearer sk-up")


async def test_fetch_without_a_key_and_through_a_proxy(upstream: Upstream) -> None:
    async with Proxy() as proxy:
        assert (await fetch(f"{upstream.url}/models", None, proxy.http))[0] == 200
        assert proxy.asked == [f"127.0.0.1:{upstream.port}"]
    assert upstream.requests[0].header("authorization") is None


async def test_fetch_undoes_compression_and_does_not_follow(upstream: Upstream) -> None:
    upstream.script(Reply(b"[]", gzip=True), path="/models")
    upstream.script(Reply(b"", 307, {"location": f"{upstream.url}/models"}), path="/models")
    assert await fetch(f"{upstream.url}/models") == (200, b"[]")
    assert (await fetch(f"{upstream.url}/models"))[0] == 307
    assert len(upstream.requests) == 2


async def test_fetch_takes_no_endless_list(upstream: Upstream) -> None:
    upstream.script(Reply(gzip.compress(bytes(8 << 20)), headers={"content-encoding": "gzip"}), path="/models")
    assert (await failure(fetch(f"{upstream.url}/models")))[0] == "bad_response"


@pytest.mark.parametrize(
    ("steps", "cause"),
    [
        ([Hang()], "timeout"),
        ([Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n"), *[Pause(0.1), Send(b"x")] * 50], "timeout"),
        ([Reset()], "cut"),
        ([Reply(b"no gzip", headers={"content-encoding": "gzip"})], "bad_response"),
    ],
    ids=["silence", "drops", "reset", "broken compression"],
)
async def test_fetch_fails(upstream: Upstream, steps: list, cause: str) -> None:
    upstream.script(*steps, path="/models")
    assert (await failure(fetch(f"{upstream.url}/models", seconds=0.3)))[0] == cause


async def test_fetch_finds_nobody() -> None:
    with refusing_port() as port:
        assert (await failure(fetch(f"http://127.0.0.1:{port}/v1/models")))[0] == "connect"
        assert (await failure(fetch(f"https://127.0.0.1:{port}/v1/models")))[0] == "connect"
