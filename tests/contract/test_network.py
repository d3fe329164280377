"""The own client and the network: descriptors, names, addresses where nobody answers, TLS."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.clock import Deadlines
from gateway.config.runtime import Target
from gateway.errors import UpstreamFailure
from gateway.upstream.pool import Pool, PoolLimits
from tests.fakes import Authority, Close, Hang, Reply, Reset, Send, Step, Upstream, refusing_port, silent_port
from tests.unit.upstream.asking import SOON, ask, failure, pool_to, send, turns


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


OUTCOMES: list[Callable[[], Step]] = [
    lambda: Reply(b"fine"),
    lambda: Reply([b"a", b"b"], framing="chunked"),
    lambda: Reply(b"fine", framing="close"),
    lambda: Reply(b"no", 500),
    lambda: Reset(),
    lambda: Close(),
    lambda: Send(b"garbage\r\n\r\n"),
    lambda: Hang(),
    lambda: Reply([b"a", Reset()], framing="chunked"),
    lambda: Reply([b"a", Hang()], framing="chunked"),
]


async def test_no_descriptor_is_left_after_mixed_outcomes(upstream: Upstream) -> None:
    dice = random.Random(3)

    async def one(pool: Pool, leave: bool) -> None:
        task = asyncio.create_task(ask(pool, within=0.2))
        if leave:
            await turns(dice.randrange(12))
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None or isinstance(task.exception(), UpstreamFailure)

    before = descriptors()
    async with pool_to(upstream.url, connections=8) as pool:
        for _ in range(200):
            upstream.script(dice.choice(OUTCOMES)())
        await asyncio.gather(*(one(pool, dice.random() < 0.3) for _ in range(200)))
    async with asyncio.timeout(SOON):
        await upstream.until_open(0)
        await turns()
    assert pool.open == 0
    assert descriptors() == before


async def test_no_descriptor_left_is_the_gateways_own_trouble(upstream: Upstream) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with pool_to(upstream.url) as pool:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            failed = await failure(ask(pool))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert failed == ("pool", "the gateway has no file descriptor left")
        await ask(pool)


# -- connecting


def sockets_to(port: int) -> list[socket.socket]:
    """Copies of this process's sockets to a port; the caller closes them."""
    numbers = [int(number) for number in os.listdir("/proc/self/fd")]
    copies = [socket.socket(fileno=os.dup(number)) for number in numbers if is_socket(number)]
    found = []
    for copy in copies:
        with suppress(OSError, IndexError):
            if copy.getpeername()[1] == port:
                found.append(copy)
    for copy in set(copies) - set(found):
        copy.close()
    return found


def is_socket(number: int) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    return False


async def test_small_writes_go_out_at_once(upstream: Upstream) -> None:
    async with pool_to(upstream.url) as pool:
        await ask(pool)
        (connection,) = sockets_to(upstream.port)
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_nobody_listens() -> None:
    with refusing_port() as port:
        async with pool_to(f"http://127.0.0.1:{port}") as pool:
            assert await failure(ask(pool)) == ("connect", "connection refused")


async def test_connecting_takes_too_long() -> None:
    with silent_port() as port:
        async with pool_to(f"http://127.0.0.1:{port}") as pool:
            assert await failure(send(pool, connect=0.05)) == ("connect", "no connection within 0.05 s")
            cause, told = await failure(send(pool, within=0.05))
            assert (cause, told.startswith("no connection within 0.0")) == ("connect", True)  # of what was left
            assert pool.open == 0


@pytest.mark.parametrize("name", ["no-such-host.invalid", "two..dots", "x" * 70 + ".invalid"])
async def test_a_name_that_is_none(name: str) -> None:
    async with pool_to(f"http://{name}:80") as pool:
        cause, detail = await failure(ask(pool))
        assert (cause, detail) == ("connect", "the host name is not known")


class Names(asyncio.SelectorEventLoop):
    """An event loop with a name server of its own."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self.names = names

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return await super().getaddrinfo(self.names.get(host, host), port, **options)


def test_a_changed_address_is_noticed_once_connections_are_too_old() -> None:
    """One name and port, two servers on two loopback addresses; the name moves while the first one still runs."""
    names = {"moving.test": "127.0.0.1"}

    def server(text: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.readuntil(b"{}"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n" + text)

        return serve

    async def run() -> list[bytes]:
        old = await asyncio.start_server(_tidy(server(b"old")), "127.0.0.1", 0)
        port = old.sockets[0].getsockname()[1]
        new = await asyncio.start_server(_tidy(server(b"new")), "127.0.0.2", port)
        limits = PoolLimits(age_seconds=0.3)
        pool = Pool(Target("http", "moving.test", port, "/v1"), Deadlines(0.01), limits, None)
        async with old, new:
            answers = [await ask(pool)]
            names["moving.test"] = "127.0.0.2"
            answers.append(await ask(pool))
            await asyncio.sleep(limits.age_seconds)
            answers.append(await ask(pool))
            pool.close()
            await turns()
        return answers

    with asyncio.Runner(loop_factory=lambda: Names(names)) as runner:
        assert runner.run(run()) == [b"old", b"old", b"new"]


def _tidy(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def tidy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    return tidy


# -- TLS


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


async def test_tls_with_the_given_authority(authority: Authority) -> None:
    async with Upstream(tls=authority.server()) as up, pool_to(up.url, authority.client()) as pool:
        for _ in range(2):
            assert await ask(pool)
        assert up.connections.total == 1


def secret_free(detail: str, upstream: Upstream) -> bool:
    return not any(word in detail for word in ("127.0.0.1", "localhost", "internal", str(upstream.port)))


async def test_tls_with_another_authority(authority: Authority) -> None:
    async with Upstream(tls=authority.server()) as up, pool_to(up.url, Authority().client()) as pool:
        cause, detail = await failure(ask(pool))
        assert cause == "connect"
        assert detail.startswith("TLS certificate not trusted (")
        assert "certificate" in detail.partition("(")[2]
        assert secret_free(detail, up)
        assert up.count() == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_tls_for_another_name(authority: Authority, host: str) -> None:
    async with (
        Upstream(tls=authority.server("upstream.internal")) as up,
        pool_to(f"https://{host}:{up.port}", authority.client()) as pool,
    ):
        cause, detail = await failure(ask(pool))
        assert cause == "connect"
        assert "mismatch" in detail
        assert secret_free(detail, up)


async def test_tls_where_none_is_spoken(authority: Authority) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 The plain HTTP request was sent to HTTPS port\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as plain:
        port = plain.sockets[0].getsockname()[1]
        async with pool_to(f"https://127.0.0.1:{port}", authority.client()) as pool:
            assert await failure(ask(pool)) == ("connect", "TLS failed (wrong version number)")
