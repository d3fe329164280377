"""C11: the caller leaves, at any moment; the upstream is told at once, and nothing counts as its failure."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import StartGateway
from tests.fakes import Client, Hang, Reply, Send, Sse, Step, Upstream, answer, chunk, post, silent_port
from tests.harness import LocalGateway, config_for
from tests.wire.calls import CHAT, LIMIT, STREAM, ask

HUNDRED = [chunk("", "assistant"), *(chunk(f"w{n} ") for n in range(100))]
PLAIN = ask(stream=False, stream_options=None)


def leave(client: Client, how: str) -> None:
    client.close() if how == "FIN" else client.reset()


async def assert_booked(gw: LocalGateway, **fields: object) -> dict[str, object]:
    """One call, closed by its caller; nothing is in flight and no upstream is blamed."""
    line = await gw.logged(event="call")
    assert (line["outcome"], line["status"]) == ("client_closed", 499)
    assert "failed" not in line
    metrics = await gw.metrics()
    assert metrics.total("turnout_requests_total", outcome="client_closed") == 1
    assert metrics.total("turnout_requests_total") == 1
    assert metrics.total("turnout_in_flight") == 0
    return line


@pytest.mark.parametrize("how", ["FIN", "RST"])
async def test_c11_in_the_middle_of_a_stream(upstream: Upstream, gateway: StartGateway, how: str) -> None:
    upstream.script(Sse(HUNDRED, gap=0.05))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        pieces = (await client.response()).pieces()
        for _ in range(3):
            await anext(pieces)
        leave(client, how)
        await (await upstream.call()).closed.wait()
        await upstream.until_open(0)
    line = await assert_booked(gw)
    assert 2 <= int(str(line["completion"])) < 100
    assert line["reported"] is False


SILENT: dict[str, Step] = {
    "before the head": Hang(),
    "after the head": Sse([Hang()]),
    "before any content": Sse([chunk("", "assistant"), b": wait\n\n", Hang()]),
    "within an error's body": Reply([b'{"error":', Hang()], 429, {"content-length": "100"}),
}


@pytest.mark.parametrize("step", SILENT.values(), ids=SILENT)
@pytest.mark.parametrize(("how", "asked"), [("FIN", ask()), ("RST", PLAIN)], ids=["stream, FIN", "plain, RST"])
async def test_c11_before_the_commit_point(
    upstream: Upstream, second: Upstream, gateway: StartGateway, step: Step, how: str, asked: bytes
) -> None:
    upstream.script(step)
    gw = await gateway(config_for(upstream, second))
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(asked)
        call = await upstream.call()
        leave(client, how)
        await call.closed.wait()
        await upstream.until_open(0)
    line = await assert_booked(gw)
    assert line["completion"] == 0
    assert second.count() == 0


async def test_c11_within_a_plain_answer(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Reply([b'{"choices":[', Hang()], framing="chunked"))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(PLAIN)
        asked = await upstream.call()
        client.close()
        await asked.closed.wait()
    await assert_booked(gw)


async def test_c11_while_the_gateway_connects(gateway: StartGateway) -> None:
    with silent_port() as port:
        gw = await gateway(Upstream(port=port))  # only its address is used
        async with asyncio.timeout(LIMIT), gw.connect() as client:
            await client.send(ask())
            while not (await gw.metrics()).total("turnout_in_flight"):
                pass
            client.close()
            await gw.logged(event="call")
    await assert_booked(gw)


async def test_c11_while_sending_the_body(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask()[:-10], separate=True)
        client.close()
        await gw.logged(event="call")
    await assert_booked(gw)
    assert upstream.count() == 0


async def test_c11_twenty_aborts_leave_the_model_in_use(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    gw = await gateway(config_for(upstream, second))
    upstream.script(Sse([chunk("Hi"), Hang()]), times=20)

    async def abort() -> None:
        async with gw.connect() as client:
            await client.send(ask())
            await anext((await client.response()).pieces())
            client.reset()

    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*(abort() for _ in range(20)))
        await upstream.until_open(0)
    assert (await gw.chat(**STREAM)).header("x-turnout-upstream") == "u0"
    assert second.count() == 0


@pytest.mark.seconds
async def test_c11_after_the_last_byte_is_a_success(upstream: Upstream, gateway: StartGateway) -> None:
    """The caller has its whole answer and leaves while the upstream dawdles."""
    upstream.script(Sse([*answer("Hi"), Hang()]))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        await (await client.response()).read()
        client.reset()
        await (await upstream.call()).closed.wait()
    assert [line["outcome"] for line in gw.calls()] == ["ok"]


async def test_c11_a_request_that_was_queued_behind_is_not_run(upstream: Upstream, gateway: StartGateway) -> None:
    """Two requests in one write; the caller leaves during the first answer."""
    upstream.script(Sse([chunk("Hi"), Hang()]))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask() + post(CHAT, {"model": "auto", "messages": []}))
        await anext((await client.response()).pieces())
        client.close()
        await (await upstream.call()).closed.wait()
    await assert_booked(gw)
    assert upstream.count() == 1


async def test_c11_a_half_of_the_next_answer_is_nobodys(upstream: Upstream, gateway: StartGateway) -> None:
    """What an abandoned answer still sends never shows in another call's answer."""
    gw = await gateway(upstream)
    upstream.script(Send(Sse([chunk("mine")]).wire()[:-5]), Hang())
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        await anext((await client.response()).pieces())
        client.close()
        await (await upstream.call()).closed.wait()
    assert b"mine" not in (await gw.chat("yours", **STREAM)).body
