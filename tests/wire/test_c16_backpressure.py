"""C16: nothing collects events on the way, and a caller that does not read stops the upstream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.edge.pulse import Patience
from tests.conftest import StartGateway
from tests.fakes import DONE, Reply, Sse, Upstream, WaitFor, answer, chunk
from tests.wire.calls import LIMIT, STREAM, ask

MEGABYTE = chunk("x" * 1_000_000)
HELD = 24_000_000
"""Bytes: more than the kernel's buffers for four sockets grow to, far less than what is sent."""


async def test_c16_headers_of_a_stream(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    answered = await gw.chat(**STREAM, headers={"accept-encoding": "gzip, br"})
    assert answered.header("content-type") == "text/event-stream; charset=utf-8"
    assert answered.header("cache-control") == "no-cache"
    assert answered.header("x-accel-buffering") == "no"
    assert answered.header("content-length") is None
    assert answered.header("content-encoding") is None
    assert answered.header("transfer-encoding") == "chunked"
    assert answered.header("openai-processing-ms")


async def test_c16_each_event_is_one_write(upstream: Upstream, gateway: StartGateway) -> None:
    """Seen from the raw bytes: one HTTP chunk per event, each out before the next one exists."""
    events = answer("Hel", "lo", usage=(3, 2))[1:]
    gates = [asyncio.Event() for _ in events]
    steps = [step for pair in zip(events, map(WaitFor, gates), strict=True) for step in pair]
    upstream.script(Sse(steps))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        answered = await client.response()
        pieces = answered.pieces()
        for event, gate in zip(events, gates, strict=True):
            assert (await anext(pieces)).data == event
            gate.set()
        assert [piece async for piece in pieces] == []
    raw = b"".join(piece.data for piece in client.received).partition(b"\r\n\r\n")[2]
    assert raw == b"".join(b"%x\r\n%b\r\n" % (len(e), e) for e in events) + b"0\r\n\r\n"


@pytest.mark.parametrize("kind", ["stream", "plain"])
async def test_c16_a_caller_that_never_reads_is_dropped(kind: str, gateway: StartGateway) -> None:
    """200 MB wait upstream; what the gateway can hold of it is what the fake could write."""
    fields: dict[str, Any] = {} if kind == "stream" else {"stream": False, "stream_options": None}
    pieces = [MEGABYTE] * 200
    reply = Sse(pieces, separate=False) if kind == "stream" else Reply(pieces, framing="chunked", separate=False)
    async with Upstream(send_buffer=65536) as upstream:
        upstream.script(reply)
        gw = await gateway(upstream, patience=Patience(stall=0.4))
        async with asyncio.timeout(LIMIT), gw.connect(receive_buffer=65536) as client:
            client.stop_reading()
            await client.send(ask(**fields))
            call = await upstream.call()
            await call.closed.wait()
            await upstream.until_open(0)
            line = await gw.logged(event="call")
        assert call.written < (HELD if kind == "stream" else HELD + 16 * 1024 * 1024)
        assert (line["outcome"], line["status"]) == ("client_closed", 499)
        assert (await gw.metrics()).total("turnout_in_flight") == 0


@pytest.mark.seconds
async def test_c16_a_caller_that_reads_late_gets_everything(gateway: StartGateway) -> None:
    """The upstream waits meanwhile; nothing is lost, doubled or out of order."""
    events = [chunk(f"{n} " + "x" * 100_000) for n in range(400)]
    async with Upstream(send_buffer=65536) as upstream:
        upstream.script(Sse([*events, chunk(finish="stop"), DONE], separate=False))
        gw = await gateway(upstream)
        async with asyncio.timeout(LIMIT), gw.connect(receive_buffer=65536) as client:
            await client.send(ask())
            answered = await client.response()
            client.stop_reading()
            written = -1
            call = await upstream.call()
            while written != call.written:
                written = call.written
                assert (await gw.chat("another call", model="m0", stream_options=None)).status == 200
            assert written < HELD
            client.resume_reading()
            assert await answered.read() == b"".join([*events, chunk(finish="stop"), DONE])
    assert [line["outcome"] for line in gw.calls() if line["stream"]] == ["ok"]
