"""C16: 200 MB wait for a caller that reads nothing; the gateway holds a few MB of them, and the upstream waits."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes import Sse, Upstream, chunk, post
from tests.harness import Gateway, config_for
from tests.soak.load import wish
from tests.wire.calls import CHAT

EVENTS = {"1 MB events": chunk("x" * 1_000_000), "small events": chunk("hello") * 6_000}
"""What the upstream writes at once, about 1 MB."""
WRITES = 200
DEAF = 4
HELD = 6 << 20
"""Bytes of the gateway's memory that one such caller may cost."""
SENT = 24_000_000
"""Bytes of the answer that may be on the way: what the kernel's buffers of four sockets grow to, and `HELD`."""

pytestmark = pytest.mark.slow


async def until_it_waits(gw: Gateway, upstream: Upstream, calls: int) -> None:
    """Until no call's answer goes on: all that anybody would buffer has been buffered."""
    written = None
    while written != (written := [(await upstream.call(n)).written for n in range(calls)]):
        for _ in range(50):
            assert (await gw.fetch("/health/live")).status == 200


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
async def test_c16_callers_that_read_nothing(event: bytes) -> None:
    async with Upstream(send_buffer=65536) as upstream, Gateway(config_for(upstream)) as gw:
        assert (await gw.chat("warm", stream=True)).status == 200
        before = gw.rss()
        upstream.script(Sse([event] * WRITES, separate=False), times=DEAF)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:

            async def ask_and_read_nothing(over: asyncio.Event) -> None:
                async with gw.connect(receive_buffer=65536) as client:
                    client.stop_reading()
                    await client.send(post(CHAT, wish("auto", 0, 0)))
                    await over.wait()
                    client.reset()

            over = asyncio.Event()
            for _ in range(DEAF):
                group.create_task(ask_and_read_nothing(over))
            await upstream.call(DEAF)
            await until_it_waits(gw, upstream, DEAF + 1)
            held = gw.rss() - before
            written = [call.written for call in upstream.calls[1:]]
            over.set()
        print(f"\nwritten, MB: {[w // 10**6 for w in written]}; memory for each: {held / DEAF / 2**20:.1f} MB")
        assert held < DEAF * HELD
        assert all(w < SENT < WRITES * len(event) for w in written)
        async with asyncio.timeout(15):
            await upstream.until_open(0)
            while (await gw.metrics()).total("turnout_requests_total", outcome="client_closed") < DEAF:
                pass
