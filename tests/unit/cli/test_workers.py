"""`turnout serve --workers`: real processes behind one socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes import Hang, Sse, Upstream, chunk, fetch, refusing_port
from tests.harness import Gateway, config_for
from tests.wire.calls import LIMIT, ask

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]
TWO = ("--workers", "2")
REDIS = {"redis_url": "redis://127.0.0.1:1/0"}  # nobody answers there, and no limit asks


def workers(parent: int) -> list[int]:
    """The worker processes, by what the system knows of them."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children]


async def until_gone(processes: list[int]) -> None:
    async with asyncio.timeout(LIMIT):
        while any(os.path.exists(f"/proc/{p}") for p in processes):  # noqa: ASYNC110, ASYNC240 - not our children
            await asyncio.sleep(0.02)


async def until_in_force(gw: Gateway, count: int) -> None:
    """So many times a worker said that a configuration is in force."""
    async with asyncio.timeout(LIMIT):
        while len(gw.log(event="configuration in force")) < count:  # noqa: ASYNC110 - a log has no event to wait for
            await asyncio.sleep(0.02)


@pytest.fixture
async def gw(upstream: Upstream) -> AsyncIterator[Gateway]:
    async with Gateway(config_for(upstream, gateway=REDIS), arguments=TWO) as gateway:
        yield gateway


async def test_a_killed_worker_is_replaced_and_what_it_counted_stays(gw: Gateway) -> None:
    for _ in range(20):
        assert (await gw.chat()).status == 200
    before = workers(gw.pid)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    async with asyncio.timeout(LIMIT):
        while set(now := workers(gw.pid)) <= set(before) or len(now) < 2:
            assert (await gw.metrics()).total("turnout_requests_total") == 20
            await asyncio.sleep(0.02)
    for _ in range(20):
        assert (await gw.chat()).status == 200
        assert (await gw.metrics()).total("turnout_requests_total") > 20
    assert (await gw.metrics()).total("turnout_requests_total") == 40
    assert f"worker {before[0]} has ended (signal SIGKILL)" in gw.output


async def test_the_metrics_port_outlives_any_worker(upstream: Upstream) -> None:
    with refusing_port() as port:
        pass
    config = config_for(upstream, gateway=REDIS | {"metrics": port})
    async with Gateway(config, arguments=TWO) as gw, asyncio.timeout(LIMIT * 2):
        for _ in range(10):
            assert (await gw.chat()).status == 200
        for _ in range(2):
            first, second = workers(gw.pid)
            os.kill(first, signal.SIGKILL)
            while len(now := workers(gw.pid)) < 2 or first in now:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            for _ in range(10):
                scraped = await fetch(f"http://127.0.0.1:{port}", "/metrics")
                assert b'outcome="ok",route="auto",upstream="u0"} 10.0' in scraped.body
            assert second in workers(gw.pid)
    with pytest.raises(ConnectionRefusedError):
        await fetch(f"http://127.0.0.1:{port}", "/metrics")


async def test_a_signal_ends_them_all_in_good_order(upstream: Upstream, gw: Gateway) -> None:
    upstream.script(Sse([chunk("a"), chunk(finish="stop"), b"data: [DONE]\n\n"], gap=0.5))
    family = workers(gw.pid)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        pieces = (await client.response()).pieces()
        await anext(pieces)
        gw.signal(signal.SIGTERM)
        rest = [piece async for piece in pieces]
        assert b"[DONE]" in rest[-1].data
    assert await gw.wait() == 0
    await until_gone(family)


async def test_workers_end_with_their_parent(upstream: Upstream) -> None:
    gw = Gateway(config_for(upstream, gateway=REDIS), arguments=TWO)
    with pytest.raises(AssertionError, match="ended with -9"):  # noqa: PT012 - told at the end of the context
        async with gw:
            family = workers(gw.pid)
            gw.signal(signal.SIGKILL)
            await gw.wait()
            await until_gone(family)


async def test_a_reload_reaches_every_worker(upstream: Upstream, gw: Gateway) -> None:
    await until_in_force(gw, 2)
    before = (await gw.chat()).header("x-turnout-config")
    gw.write_config(config_for(upstream, gateway=REDIS | {"attempts": 3}))
    gw.signal(signal.SIGHUP)
    await until_in_force(gw, 4)
    digests = {(await gw.chat()).header("x-turnout-config") for _ in range(20)}
    assert len(digests) == 1
    assert digests != {before}


async def test_in_flight_is_told_for_all(upstream: Upstream, gw: Gateway) -> None:
    upstream.script(Sse([chunk("a"), Hang()]), times=6)
    async with asyncio.timeout(LIMIT):
        clients = [gw.connect() for _ in range(6)]
        for client in clients:
            connection = await client.__aenter__()
            await connection.send(ask())
            await anext((await connection.response()).pieces())
        while (await gw.metrics()).total("turnout_in_flight") != 6:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for client in clients:
            await client.__aexit__(None, None, None)
        while (await gw.metrics()).total("turnout_in_flight") != 0:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_without_redis_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    file.write_text(json.dumps(config_for(Upstream(port=9))))
    command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(file), "--port", "0", *TWO]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "more than one worker needs gateway.redis_url" in ended.stderr


async def test_workers_that_cannot_start_end_the_parent(upstream: Upstream) -> None:
    gw = Gateway(config_for(upstream, gateway=REDIS), arguments=TWO)
    with pytest.raises(AssertionError, match="ended with 1"):  # noqa: PT012
        async with gw:
            gw.write_config("version: 2")
            os.kill(workers(gw.pid)[0], signal.SIGKILL)
            await gw.wait()
    assert "giving up" in gw.output
