"""512 streams at once for a minute, beside callers that leave, that read slowly and that read nothing at all.

No event is lost, doubled or out of order, every call is counted as what it was, and afterwards the gateway holds as
many descriptors and hardly more memory than before.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from tests.fakes import Sse, Upstream, chunk, post
from tests.harness import Gateway, Samples
from tests.soak.load import load, shown, wish

SECONDS = 60
STREAMS = ("--connections=512", "--stream", "--stagger-us=2000")
CHUNKS = 100
COMPLETION = 180
"""Tokens that the mock reports for each stream."""
LEAVING, SLOW, DEAF = 16, 8, 4
GROWTH = 20 << 20
"""Bytes of memory that a minute may add to a gateway that has seen as many streams before."""
BOOKS = 16
"""Descriptors that the ledger and its database open with the first calls; streams leave far more behind, if any."""
LIMIT = 30.0
"""Seconds after which a wait has failed."""
PATH = "/v1/chat/completions"
MARK = re.compile(rb"@T\d{19}\.(\d{6})")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def config(mock: str, fake: Upstream) -> dict:
    """A model for each kind of caller, so that each is counted apart."""
    models = {kind: {"upstream": "mock", "model": "mock-model"} for kind in ("steady", "leaving", "slow")}
    models["deaf"] = {"upstream": "fake", "model": "fake"}
    return {
        "version": 1,
        "upstreams": {"mock": {"base_url": mock}, "fake": {"base_url": fake.url}},
        "models": models,
    }


async def leave(gw: Gateway, number: int, over: asyncio.Event) -> int:
    """Ask again and again, leave within the answer, by FIN and by RST; returns how often."""
    calls = 0
    while not over.is_set():
        async with gw.connect() as client:
            await client.send(post(PATH, wish("leaving", 4000, 10)), separate=True)
            wanted = (calls + number) % 20
            if wanted:
                pieces = (await client.response()).pieces()
                for _ in range(wanted):
                    await anext(pieces)
            client.reset() if calls % 2 else client.close()
        calls += 1
    return calls


async def read_slowly(gw: Gateway, over: asyncio.Event) -> int:
    """Take, with pauses, a stream that the mock writes at once; again and again; returns how often."""
    calls = 0
    while not over.is_set():
        async with gw.connect(receive_buffer=8192) as client:
            await client.send(post(PATH, wish("slow", 4000, 0)))
            body = bytearray()
            async for piece in (await client.response()).pieces():
                body += piece.data
                client.stop_reading()
                await asyncio.sleep(0.01)  # the pause is what is tested
                client.resume_reading()
        assert [int(index) for index in MARK.findall(body)] == list(range(4000))
        assert body.endswith(b"data: [DONE]\n\n")
        calls += 1
    return calls


async def settled(gw: Gateway, descriptors: int) -> Samples:
    """The metrics, as soon as nothing is under way and hardly more than the descriptors of the start are open."""
    async with asyncio.timeout(LIMIT):
        while (metrics := await gw.metrics()).total(
            "turnout_in_flight"
        ) or await gw.descriptors_at_rest() > descriptors + BOOKS:
            pass  # idle connections to the upstream are closed by age
    return metrics


async def test_512_streams_for_a_minute(mock: Callable[[], str]) -> None:
    over = asyncio.Event()
    async with Upstream() as fake, Gateway(config(mock(), fake)) as gw, AsyncExitStack() as deaf:
        fake.script(Sse([chunk("x" * 100_000)] * 2000, separate=False), times=None)
        descriptors, cold = await gw.descriptors_at_rest(), gw.rss()
        first = await load(gw, wish("steady", 10, 50), 1, *STREAMS)
        await settled(gw, descriptors)
        warm = gw.rss()

        for _ in range(DEAF):
            client = await deaf.enter_async_context(gw.connect(receive_buffer=65536))
            client.stop_reading()
            await client.send(post(PATH, wish("deaf", 0, 0)))
        async with asyncio.TaskGroup() as group:
            leaving = [group.create_task(leave(gw, number, over)) for number in range(LEAVING)]
            slow = [group.create_task(read_slowly(gw, over)) for _ in range(SLOW)]
            report = await load(gw, wish("steady", CHUNKS, 50), SECONDS, *STREAMS)
            full = gw.rss()
            over.set()
        async with asyncio.timeout(LIMIT):  # by now they have taken nothing for a minute
            for number in range(DEAF):
                await (await fake.call(number)).closed.wait()
        metrics = await settled(gw, descriptors)
        after = gw.rss()

    left, read, whole = (sum(t.result() for t in leaving), sum(t.result() for t in slow), report["completed"])
    print(f"\n{whole} streams, {report['chunks_total']} events; {left} left, {read} slowly read")
    print(f"delay of an event: {shown(report, 'chunk_delay_us')}; between two: {shown(report, 'gap_us')}")
    print(f"memory, MB: cold {cold >> 20}, warm {warm >> 20}, under load {full >> 20}, afterwards {after >> 20}")
    assert min(left, read) > 0
    assert whole >= 512 * (SECONDS // 10)  # 512 at once, all the time
    assert report["chunks_total"] == whole * CHUNKS
    whole += first["completed"]
    expected = {("steady", "ok"): whole, ("slow", "ok"): read, ("leaving", "client_closed"): left}
    expected["deaf", "client_closed"] = DEAF
    total = sum(expected.values())
    counted = {key: metrics.total("turnout_requests_total", model=key[0], outcome=key[1]) for key in expected}
    assert counted == expected
    assert metrics.total("turnout_tokens_total", model="steady", kind="completion") == whole * COMPLETION
    for name in ("turnout_requests_total", "turnout_attempts_total", "turnout_request_seconds_count"):
        assert metrics.total(name) == total
    assert len(gw.calls()) == total
    assert after <= warm + GROWTH
