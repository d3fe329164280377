"""Many calls at once through the real stages, without a web server: each is answered and booked once."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any, cast

import pytest

from gateway.config.base_url import resolve
from gateway.config.runtime import GatewaySettings, Runtime, Timeouts
from gateway.telemetry.logs import Writer, logger
from gateway.upstream.pool import PoolLimits
from gateway.wiring import Gateway
from tests.fakes import DONE, Close, Hang, Pause, Reply, Reset, Send, Sse, Step, Upstream, chunk, error
from tests.flow.exchange import MemoryExchange, asking
from tests.unit.building import a_model, a_runtime, an_upstream

CALLS = 300
SOON = 60.0
PLAIN: list[Step] = [
    Reply(b'{"choices":[{"index":0,"message":{"content":"hi"}}]}', separate=False),
    Reply([b'{"choices"', Pause(0.01), b':[{"index":0}]}'], framing="chunked", separate=False),
    Reply(b"<html>", separate=False),
    Reply([b'{"cho', Reset()], framing="chunked", separate=False),
]
STREAM: list[Step] = [
    Sse([chunk("hi"), chunk(finish="stop"), DONE], separate=False),
    Sse([chunk("hi"), Pause(0.02), chunk(" you"), chunk(finish="stop"), DONE], separate=False),
    Sse([chunk("hi"), Close()], separate=False),
    Sse([chunk("hi"), Reset()], separate=False),
    Sse([DONE], separate=False),
]
EITHER: list[Step] = [error(500), error(429), error(400), error(503), Reset(), Close(), Send(b"garbage"), Hang()]


class Calls:
    """The log, of which only finished calls are kept."""

    def __init__(self) -> None:
        self.booked: list[dict[str, Any]] = []
        self.faults: list[str] = []

    def msg(self, line: str) -> None:
        entry = json.loads(line)
        if entry["event"] == "call":
            self.booked.append(entry)
        if entry["level"] == "error":
            self.faults.append(line)

    debug = info = warning = error = critical = msg


def runtime_for(*upstreams: Upstream) -> Runtime:
    models = [
        a_model(f"m{n}", an_upstream(f"u{n}", targets=(resolve(up.url),)), context=1000 * (n + 1))
        for n, up in enumerate(upstreams)
    ]
    timeouts = Timeouts(connect=1, first_event=0.3, idle=0.3, total=1.0)
    return a_runtime(*models, gateway=GatewaySettings(timeouts=timeouts, attempts=3))


async def outcome(exchange: MemoryExchange, leave_after: int | None) -> str:
    running = asyncio.create_task(exchange.run())
    if leave_after is not None:
        for _ in range(leave_after):
            await asyncio.sleep(0)
        exchange.leave()
    await running
    if not exchange.over:
        return "client_closed"
    return exchange.error.code if exchange.error else "ok"


@pytest.mark.parametrize("connections", [4, 64])
@pytest.mark.seconds
async def test_every_call_is_answered_and_booked_once(connections: int) -> None:
    dice, log = random.Random(connections), Calls()
    async with Upstream() as first, Upstream() as second, Upstream() as third, asyncio.timeout(SOON):
        for up in (first, second, third):
            for _ in range(CALLS):
                step = dice.choice([*PLAIN, *STREAM, *EITHER])
                up.script(step)
        runtime = runtime_for(first, second, third)
        limits = PoolLimits(connections=connections, queue_seconds=0.5)
        gateway = Gateway(runtime, logger(cast(Writer, log), as_text=False), pool_limits=limits)
        exchanges = [
            MemoryExchange(gateway, asking(dice.choice(["auto", "m0", "m1"]), stream=dice.random() < 0.6), number=n)
            for n in range(CALLS)
        ]
        leaving = [dice.randrange(60) if dice.random() < 0.25 else None for _ in exchanges]
        outcomes = [asyncio.create_task(outcome(e, after)) for e, after in zip(exchanges, leaving, strict=True)]
        await asyncio.sleep(0.05)
        gateway.apply(runtime_for(first, second, third))  # in the middle of it all
        told = dict(zip((e.request_id for e in exchanges), await asyncio.gather(*outcomes), strict=True))
        await gateway.close()
        for up in (first, second, third):
            await up.until_open(0)
    booked = Counter(entry["id"] for entry in log.booked)
    assert booked == Counter(told.keys())
    assert log.faults == []
    differing = [(e["id"], e["outcome"], told[e["id"]]) for e in log.booked if e["outcome"] != told[e["id"]]]
    assert {(was, seen) for _, was, seen in differing} <= {("ok", "client_closed")}, differing
    assert len(set(told.values())) >= 3
