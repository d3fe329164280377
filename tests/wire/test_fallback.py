"""Fallback in its plainest form: the first upstream is dead, plain and streamed, and the caller hardly notices."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Upstream, answer, completion, refusing_port
from tests.harness import config_for
from tests.wire.calls import STREAM, payloads, text_of


async def test_fallback_from_a_dead_upstream_plain(second: Upstream, gateway: StartGateway) -> None:
    with refusing_port() as port:
        gw = await gateway(config_for(Upstream(port=port), second))
        answered = await gw.chat("hello")
    assert answered.body == completion("hello", (1, 1))
    assert answered.header("x-turnout-attempts") == "2"
    assert (answered.header("x-turnout-model"), answered.header("x-turnout-upstream")) == ("m1", "u1")
    (line,) = gw.calls()
    assert (line["outcome"], line["model"], line["attempts"]) == ("ok", "m1", 2)
    assert line["failed"][0].startswith("m0: connect:")
    metrics = await gw.metrics()
    assert metrics.total("turnout_fallbacks_total", route="auto", to="m1", cause="connect") == 1
    assert metrics.total("turnout_attempts_total", upstream="u0", result="connect") == 1
    assert metrics.total("turnout_attempts_total", upstream="u1", result="ok") == 1


async def test_fallback_from_a_dead_upstream_streamed(second: Upstream, gateway: StartGateway) -> None:
    with refusing_port() as port:
        gw = await gateway(config_for(Upstream(port=port), second))
        answered = await gw.chat("hello there", **STREAM)
    assert answered.body == b"".join(answer("hello", " there", usage=(2, 2)))
    assert answered.header("x-turnout-upstream") == "u1"


@pytest.mark.parametrize("fields", [STREAM, {}], ids=["stream", "plain"])
async def test_fallback_with_all_upstreams_dead(gateway: StartGateway, fields: dict[str, Any]) -> None:
    """One clear error that names route, models and causes, and no address."""
    with refusing_port() as first, refusing_port() as other:
        gw = await gateway(config_for(Upstream(port=first), Upstream(port=other)))
        answered = await gw.chat(**fields)
    told = answered.json()["error"]
    assert (answered.status, told["code"]) == (502, "upstream_unavailable")
    assert all(part in told["message"] for part in ("auto", "m0 via u0", "m1 via u1"))
    assert "127.0.0.1" not in told["message"]
    assert str(first) not in told["message"]


async def test_fallback_is_not_for_a_model_named_by_the_caller(second: Upstream, gateway: StartGateway) -> None:
    with refusing_port() as port:
        gw = await gateway(config_for(Upstream(port=port), second))
        assert (await gw.chat(model="m0")).status == 502
    assert second.count() == 0


async def test_fallback_sends_each_model_its_own_id_and_key(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    await upstream.stop()
    gw = await gateway(config_for(upstream, second, models={"m1": {"model": "org/other"}}))
    answered = await gw.chat("hello", **STREAM)
    assert text_of(answered.body) == "hello"
    assert {p["model"] for p in payloads(answered.body)[:-1]} == {"org/other"}
    assert second.calls[0].header("authorization") == "Bearer sk-upstream-1"


async def test_fallback_comes_back_when_the_first_upstream_does(second: Upstream, gateway: StartGateway) -> None:
    first = Upstream()
    async with first:
        gw = await gateway(config_for(first, second))
        assert (await gw.chat()).header("x-turnout-upstream") == "u0"
    assert (await gw.chat()).header("x-turnout-upstream") == "u1"
    async with Upstream(port=first.port):
        assert (await gw.chat()).header("x-turnout-upstream") == "u0"
