"""C37: how long to wait, as the upstream said it; with another model at hand nobody waits, without one only briefly."""

from __future__ import annotations

import asyncio
import email.utils
import time

import pytest

from gateway.edge.pulse import Patience
from tests.conftest import StartGateway
from tests.fakes import Upstream, error
from tests.harness import config_for
from tests.wire.calls import LIMIT, STREAM, ask, errors_of, text_of

SAID: dict[str, tuple[int, dict[str, str], str, str]] = {
    "seconds": (429, {"retry-after": "30"}, "30", "30000"),
    "milliseconds": (429, {"retry-after-ms": "31500"}, "32", "31500"),
    "both": (429, {"retry-after": "32", "retry-after-ms": "31500"}, "32", "31500"),
    "fraction": (429, {"retry-after": "30.2"}, "31", "30200"),
    "days": (429, {"retry-after": "287441"}, "287441", "287441000"),
    "503": (503, {"retry-after": "70"}, "70", "70000"),
}


@pytest.mark.parametrize(("status", "headers", "seconds", "milliseconds"), SAID.values(), ids=SAID)
async def test_c37_the_upstreams_time_is_passed_on(
    upstream: Upstream, gateway: StartGateway, status: int, headers: dict[str, str], seconds: str, milliseconds: str
) -> None:
    upstream.script(error(status, "slow down", headers=headers), times=2)
    gw = await gateway(upstream)
    for fields in (STREAM, {}):
        answered = await gw.chat(**fields)
        assert answered.status == status
        assert (answered.header("retry-after"), answered.header("retry-after-ms")) == (seconds, milliseconds)
    assert upstream.count() == 2


async def test_c37_a_date(upstream: Upstream, gateway: StartGateway) -> None:
    date = email.utils.formatdate(time.time() + 100, usegmt=True)
    upstream.script(error(429, headers={"retry-after": date}))
    gw = await gateway(upstream)
    assert 60 < int((await gw.chat()).header("retry-after") or 0) <= 101


async def test_c37_a_date_that_has_passed(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(429, headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}), times=2)
    gw = await gateway(upstream)
    assert (await gw.chat()).header("retry-after") == "1"


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.seconds
async def test_c37_nothing_usable(upstream: Upstream, gateway: StartGateway, status: int) -> None:
    """Both headers are on every 429 and 503: whole seconds of at least one, and the same in milliseconds."""
    gw = await gateway(upstream)
    for said in (None, "soon", "-5", "1e9", "", "٣", "9" * 30):
        headers = {} if said is None else {"retry-after": said.encode().decode("latin-1")}
        upstream.scripts.clear()
        upstream.script(error(status, headers=headers), times=None)
        answered = await gw.chat(**STREAM)
        assert answered.status == status
        seconds, milliseconds = answered.header("retry-after") or "", answered.header("retry-after-ms") or ""
        assert 1 <= int(seconds) <= 60, said
        assert int(milliseconds) == int(seconds) * 1000, said


async def test_c37_another_model_answers_at_once(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(429, headers={"retry-after": "3600"}), times=2)
    gw = await gateway(config_for(upstream, second))
    for fields in (STREAM, {}):
        answered = await gw.chat(**fields)
        assert (answered.status, answered.header("x-turnout-upstream")) == (200, "u1")
        assert answered.header("retry-after") is None


@pytest.mark.parametrize(("first", "other"), [("3600", "50"), ("50", "3600")])
async def test_c37_the_soonest_return_counts(
    upstream: Upstream, second: Upstream, gateway: StartGateway, first: str, other: str
) -> None:
    upstream.script(error(429, headers={"retry-after": first}))
    second.script(error(429, headers={"retry-after": other}))
    gw = await gateway(config_for(upstream, second))
    assert (await gw.chat()).header("retry-after") == "50"


async def test_c37_a_model_stays_out_for_the_stated_time(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    upstream.script(error(429, headers={"retry-after": "30"}))
    gw = await gateway(config_for(upstream, second))
    for attempts in ("2", "1", "1"):
        answered = await gw.chat()
        assert (answered.header("x-turnout-upstream"), answered.header("x-turnout-attempts")) == ("u1", attempts)
    assert upstream.count() == 1
    assert (await gw.metrics()).total("turnout_breaker_state", upstream="u0", model="m0") == 2
    assert (await gw.chat(model="m0")).status == 200  # named by its caller, it is asked all the same


async def test_c37_without_another_model_a_short_time_is_waited(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(429, headers={"retry-after-ms": "200"}))
    gw = await gateway(upstream)
    started = time.monotonic()
    answered = await gw.chat("hello", **STREAM)
    assert time.monotonic() - started >= 0.2
    assert (text_of(answered.body), answered.header("x-turnout-attempts")) == ("hello", "2")
    assert upstream.count() == 2
    (line,) = gw.calls()
    assert line["outcome"] == "ok"
    assert (await gw.metrics()).total("turnout_fallbacks_total") == 0


@pytest.mark.seconds
async def test_c37_pings_keep_a_stream_that_waits(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(429, headers={"retry-after-ms": "300"}))
    gw = await gateway(upstream, patience=Patience(ping=0.05))
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask("hello"))
        body = await (await client.response()).read()
    assert body.startswith(b": ping\n\n")
    assert text_of(body) == "hello"


async def test_c37_who_leaves_ends_the_wait(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(429, headers={"retry-after": "15"}))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask("hello"))
        await (await upstream.call()).done.wait()
        client.reset()
        line = await gw.logged(event="call")
    assert line["outcome"] == "client_closed"
    assert upstream.count() == 1


async def test_c37_the_wait_leaves_half_of_the_time(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(429, headers={"retry-after": "2"}))
    gw = await gateway(config_for(upstream, gateway={"timeouts": {"total": 3}}))
    assert (await gw.chat()).header("retry-after") == "2"
    assert upstream.count() == 1


async def test_c37_whose_limit_it_was(upstream: Upstream, gateway: StartGateway) -> None:
    """The upstream's own error is shown as it is; its `x-ratelimit-*` are not taken for the gateway's."""
    limits = {"retry-after": "50", "x-ratelimit-remaining-requests": "0", "x-should-retry": "false"}
    refusal = error(429, "slow down", type="requests", code="rate_limit_exceeded", headers=limits)
    upstream.script(refusal)
    gw = await gateway(upstream)
    answered = await gw.chat()
    assert answered.body == refusal.body
    assert answered.header("x-ratelimit-remaining-requests") is None
    assert gw.calls()[0]["outcome"] == "upstream_rate_limited"
    assert errors_of(b"data: " + answered.body + b"\n\n")[0]["code"] == "rate_limit_exceeded"
