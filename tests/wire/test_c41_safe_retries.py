"""C41, the safe part: what is sent again, and what never is. The scripted upstream counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.upstream.pool import PoolLimits
from tests.conftest import StartGateway
from tests.fakes import Close, Hang, Pause, Reply, Reset, Send, Upstream, error, refusing_port
from tests.harness import config_for
from tests.wire.calls import LIMIT, STREAM

KINDS: list[dict[str, Any]] = [STREAM, {}]


async def test_c41_each_model_is_asked_once(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    for up in (upstream, second):
        up.script(error(500), times=None)
    gw = await gateway(config_for(upstream, second))
    for count, fields in enumerate(KINDS, 1):
        answered = await gw.chat(**fields, headers={"x-stainless-retry-count": "2"})
        assert (answered.status, answered.json()["error"]["code"]) == (502, "upstream_unavailable")
        assert (upstream.count(), second.count()) == (count, count)


async def test_c41_attempts_are_bounded(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(500), times=None)
    gw = await gateway(config_for(*[upstream] * 5, gateway={"attempts": 3}))
    assert (await gw.chat()).header("x-turnout-attempts") == "3"
    assert upstream.count() == 3


@pytest.mark.parametrize("fields", KINDS, ids=["stream", "plain"])
async def test_c41_a_body_that_was_taken_is_not_sent_again(
    upstream: Upstream, gateway: StartGateway, fields: dict[str, Any]
) -> None:
    upstream.script(Hang())
    gw = await gateway(config_for(upstream, gateway={"timeouts": {"total": 0.3}}))
    async with asyncio.timeout(LIMIT):
        answered = await gw.chat(**fields)
        await upstream.until_open(0)
    assert (answered.status, answered.json()["error"]["code"]) == (504, "upstream_timeout")
    assert upstream.count() == 1


@pytest.mark.parametrize("end", [Reset(), Close()], ids=["RST", "FIN"])
@pytest.mark.parametrize("size", [10, 3_000_000])
async def test_c41_a_kept_connection_that_had_died_is_replaced_once(
    upstream: Upstream, gateway: StartGateway, end: Reset | Close, size: int
) -> None:
    """It breaks when it is used again, before any byte of an answer."""
    gw = await gateway(upstream)
    assert (await gw.chat()).status == 200
    upstream.script(end)
    answered = await gw.chat("x" * size)
    assert answered.json()["choices"][0]["message"]["content"] == "x" * size
    assert (upstream.count(), upstream.connections.total) == (3, 2)
    assert answered.header("x-turnout-attempts") == "1"


async def test_c41_replaced_once_and_not_again(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    await gw.chat()
    upstream.script(Reset(), times=None)
    answered = await gw.chat()
    assert (answered.status, answered.json()["error"]["code"]) == (502, "upstream_bad_response")
    assert upstream.count() == 3


async def test_c41_a_new_connection_that_breaks_is_not_replaced(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Reset())
    gw = await gateway(upstream)
    assert (await gw.chat()).status == 502
    assert upstream.count() == 1


PARTS = [b"H", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"]


@pytest.mark.parametrize("end", [Reset(), Close()], ids=["RST", "FIN"])
async def test_c41_half_an_answer_is_never_asked_for_again(
    upstream: Upstream, gateway: StartGateway, end: Reset | Close
) -> None:
    """Not even on a connection that was kept."""
    gw = await gateway(upstream)
    for number, part in enumerate(PARTS, 1):
        await gw.chat()
        upstream.script(Send(part), end)
        answered = await gw.chat()
        assert (answered.status, answered.json()["error"]["code"]) == (502, "upstream_bad_response")
        assert upstream.count() == 2 * number


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
async def test_c41_idle_connections_that_the_upstream_closed(
    upstream: Upstream, gateway: StartGateway, reset: bool
) -> None:
    gw = await gateway(upstream)
    await asyncio.gather(*(gw.chat() for _ in range(5)))
    assert upstream.close_idle(reset=reset) >= 1
    answers = await asyncio.gather(*(gw.chat() for _ in range(10)))
    assert [a.status for a in answers] == [200] * 10
    assert gw.calls()[-1]["attempts"] == 1


async def test_c41_the_gateway_lets_go_of_an_idle_connection_first(gateway: StartGateway) -> None:
    async with Upstream(idle=30) as upstream:
        gw = await gateway(upstream, pool_limits=PoolLimits(idle_seconds=0.1))
        await gw.chat()
        async with asyncio.timeout(LIMIT):
            await upstream.until_open(0)
        assert (await gw.chat()).status == 200
    assert PoolLimits().idle_seconds < 5


async def test_c41_old_connections_are_not_used_again(upstream: Upstream, gateway: StartGateway) -> None:
    """So that a changed address is noticed."""
    gw = await gateway(upstream, pool_limits=PoolLimits(age_seconds=0.0))
    for _ in range(3):
        assert (await gw.chat()).status == 200
    assert upstream.connections.total == 3


async def test_c41_a_refused_connection_goes_to_the_next_address(upstream: Upstream, gateway: StartGateway) -> None:
    with refusing_port() as port:
        dead = f"http://127.0.0.1:{port}/v1"
        gw = await gateway(config_for(upstream, upstreams={"u0": {"base_url": [dead, upstream.url]}}))
        for fields in KINDS:
            answered = await gw.chat(**fields)
            assert (answered.status, answered.header("x-turnout-attempts")) == (200, "1")
    assert upstream.count() == 2


async def test_c41_refusals_go_to_the_next_model(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, second))
    for status in (429, 502, 503, 529):
        upstream.script(Reply(b"{}", status, reason="No"), times=2)
        for fields in KINDS:
            assert (await gw.chat(**fields)).header("x-turnout-upstream") == "u1"


async def test_c41_an_interim_answer_is_no_answer(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    body = b'{"choices":[{"index":0}]}'
    upstream.script(
        Send(b"HTTP/1.1 100 Continue\r\n\r\n"),
        Send(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"),
        Pause(0.05),
        Send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body),
    )
    answered = await gw.chat()
    assert (answered.status, answered.body) == (200, body)
