"""C13: silence at each stage has a limit of its own; pings keep the caller, and fallback stays open under them."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest

from gateway.edge.pulse import Patience
from tests.conftest import StartGateway
from tests.fakes import (
    DONE,
    Exchange,
    Hang,
    Pause,
    Reply,
    Sse,
    Step,
    Upstream,
    WaitFor,
    answer,
    chunk,
    completion,
    silent_port,
)
from tests.harness import config_for
from tests.wire.calls import LIMIT, STREAM, ask, errors_of, payloads, text_of

pytestmark = pytest.mark.slow

PING = b": ping\n\n"
ROLE = chunk("", "assistant")


def limits(**seconds: float) -> dict[str, Any]:
    return {"timeouts": {"connect": 5, "first_event": 30, "idle": 30, "total": 60} | seconds}


def forever(data: bytes) -> Step:
    """The same bytes every 50 ms until the peer leaves."""

    async def step(exchange: Exchange) -> None:
        while True:
            await exchange.send(b"%x\r\n%b\r\n" % (len(data), data))
            await asyncio.sleep(0.05)

    return step


SILENT: dict[str, Step] = {
    "no head": Hang(),
    "a head, then nothing": Sse([Hang()]),
    "comments only": Sse([forever(b": OPENROUTER PROCESSING\n\n")]),
    "role chunks only": Sse([forever(ROLE)]),
    "empty deltas only": Sse([forever(chunk(""))]),
    "blanks only": Sse([forever(b"\n")]),
    "half a first event": Sse([chunk("Hi")[:-1], Hang()]),
}


@pytest.mark.parametrize("step", SILENT.values(), ids=SILENT)
async def test_c13_no_first_event_in_time(
    upstream: Upstream, second: Upstream, gateway: StartGateway, step: Step
) -> None:
    upstream.script(step, times=2)
    gw = await gateway(config_for(upstream, second, gateway=limits(first_event=0.25)))
    async with asyncio.timeout(LIMIT):
        answered = await gw.chat("hello", **STREAM)
        await upstream.until_open(0)
        alone = await gw.chat("hello", model="m0", **STREAM)
        await upstream.until_open(0)
    assert text_of(answered.body) == "hello"
    assert (answered.header("x-turnout-upstream"), answered.header("x-turnout-attempts")) == ("u1", "2")
    assert (alone.status, alone.json()["error"]["code"]) == (504, "upstream_timeout")
    metrics = await gw.metrics()
    assert metrics.total("turnout_attempts_total", upstream="u0", result="timeout") == 2
    assert metrics.total("turnout_fallbacks_total", **{"from": "m0", "to": "m1", "cause": "timeout"}) == 1


@pytest.mark.parametrize("tail", [[Hang()], [b"data: {", Hang()]], ids=["silence", "half an event"])
async def test_c13_a_stall_after_five_tokens(
    upstream: Upstream, gateway: StartGateway, tail: list[bytes | Step]
) -> None:
    five = [ROLE, *(chunk(f"w{n}") for n in range(5))]
    upstream.script(Sse([*five, *tail]))
    gw = await gateway(config_for(upstream, gateway=limits(idle=0.25)))
    async with asyncio.timeout(LIMIT):
        answered = await gw.chat(**STREAM)
        await (await upstream.call()).closed.wait()
    assert answered.body.startswith(b"".join(five))
    assert [e["code"] for e in errors_of(answered.body)] == ["upstream_timeout"]
    assert payloads(answered.body)[-1] != "[DONE]"
    (line,) = gw.calls()
    assert (line["outcome"], line["completion"]) == ("upstream_timeout", 5)


async def test_c13_a_slow_thinker_is_not_idle(upstream: Upstream, gateway: StartGateway) -> None:
    """Only the limit for the first event applies until it comes; reasoning is an event like content."""
    events = [chunk(reasoning="hm"), chunk("Hi"), chunk(finish="stop"), DONE]
    upstream.script(Sse([ROLE, Pause(0.6), *events]))
    gw = await gateway(config_for(upstream, gateway=limits(idle=0.25)))
    assert (await gw.chat(**STREAM)).body == ROLE + b"".join(events)


async def test_c13_each_event_starts_the_idle_time_anew(upstream: Upstream, gateway: StartGateway) -> None:
    events = [ROLE, *(chunk(f"w{n}") for n in range(10)), chunk(finish="stop"), DONE]
    upstream.script(Sse(events, gap=0.06))
    gw = await gateway(config_for(upstream, gateway=limits(first_event=0.4, idle=0.4)))
    assert (await gw.chat(**STREAM)).body == b"".join(events)


@pytest.mark.parametrize("fields", [STREAM, {}], ids=["stream", "plain"])
async def test_c13_the_whole_call_has_a_limit(
    upstream: Upstream, second: Upstream, gateway: StartGateway, fields: dict[str, Any]
) -> None:
    """It ends a stream that never pauses, and after it nothing else is tried."""
    upstream.script(Sse([forever(chunk("x"))]) if fields else Reply([forever(b" ")], framing="chunked"))
    gw = await gateway(config_for(upstream, second, gateway=limits(total=0.4)))
    async with asyncio.timeout(LIMIT):
        answered = await gw.chat(**fields)
        await (await upstream.call()).closed.wait()
    told = errors_of(answered.body)[0] if fields else answered.json()["error"]
    assert told["code"] == "upstream_timeout"
    assert (upstream.count(), second.count()) == (1, 0)


async def test_c13_no_connection_in_time(second: Upstream, gateway: StartGateway) -> None:
    with silent_port() as port:
        gw = await gateway(config_for(Upstream(port=port), second, gateway=limits(connect=0.25)))
        async with asyncio.timeout(LIMIT):
            assert (await gw.chat("hello", **STREAM)).header("x-turnout-upstream") == "u1"
            alone = await gw.chat(model="m0")
    assert (alone.status, alone.json()["error"]["code"]) == (502, "upstream_unavailable")


async def test_c13_pings_open_the_answer_and_leave_fallback_open(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    pinged = asyncio.Event()

    async def fail_later(exchange: Exchange) -> None:
        await pinged.wait()
        await Reply(b"", 503)(exchange)

    events = answer("hello", usage=(1, 1))
    upstream.script(fail_later)
    second.script(Sse(events))
    gw = await gateway(config_for(upstream, second), patience=Patience(ping=0.1))
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask("hello"))
        answered = await client.response()
        assert answered.status == 200
        assert answered.header("x-accel-buffering") == "no"
        pieces = answered.pieces()
        assert (await anext(pieces)).data == PING
        pinged.set()
        body = b"".join([piece.data async for piece in pieces])
    assert body.replace(PING, b"") == b"".join(events)
    assert [line["outcome"] for line in gw.calls()] == ["ok"]


async def test_c13_an_error_after_pings_is_an_event(upstream: Upstream, gateway: StartGateway) -> None:
    pinged = asyncio.Event()

    async def fail_later(exchange: Exchange) -> None:
        await pinged.wait()
        await Reply(b'{"error":{"message":"no"}}', 422)(exchange)

    upstream.script(fail_later)
    gw = await gateway(upstream, patience=Patience(ping=0.1))
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        answered = await client.response()
        pieces = answered.pieces()
        await anext(pieces)
        pinged.set()
        body = b"".join([piece.data async for piece in pieces])
    assert (answered.status, answered.complete) == (200, True)
    assert payloads(body) == [{"error": {"message": "no"}}]
    assert gw.calls()[0]["outcome"] == "invalid_request"


async def test_c13_pings_between_events_stand_alone(upstream: Upstream, gateway: StartGateway) -> None:
    """A comment and a blank line, never within an event, never an `id`."""
    pinged = asyncio.Event()
    first, rest = chunk("Hel"), [chunk("lo"), chunk(finish="stop"), DONE]
    upstream.script(Sse([b"id: 7\n" + first, chunk("x")[:30], WaitFor(pinged), chunk("x")[30:], *rest]))
    gw = await gateway(upstream, patience=Patience(ping=0.1))
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        pieces = (await client.response()).pieces()
        assert (await anext(pieces)).data == b"id: 7\n" + first
        assert (await anext(pieces)).data == PING
        pinged.set()
        body = b"".join([piece.data async for piece in pieces])
    assert body.replace(PING, b"") == chunk("x") + b"".join(rest)


async def test_c13_a_ping_that_comes_too_late_is_none(upstream: Upstream, gateway: StartGateway) -> None:
    """The last event and the time for a ping meet in one turn of the loop: the answer ends first."""
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    patience = Patience(ping=0.05)

    async def end_and_stall(exchange: Exchange) -> None:
        await exchange.send(b"%x\r\n%b\r\n" % (len(DONE), DONE), separate=False)
        stall()

    def stall() -> None:
        time.sleep(2 * patience.ping)

    upstream.script(Sse([*answer("Hi")[:-1], end_and_stall]))
    gw = await gateway(upstream, patience=patience)
    answered = await gw.chat(**STREAM)
    assert answered.body.replace(PING, b"") == b"".join(answer("Hi"))
    gc.collect()
    assert faults == []


async def test_c13_a_plain_call_gets_no_ping(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Pause(0.3), Reply(completion("Hi")))
    gw = await gateway(upstream, patience=Patience(ping=0.05))
    assert (await gw.chat()).body == completion("Hi")
