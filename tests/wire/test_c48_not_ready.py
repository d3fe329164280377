"""C48: engines that load, that are stuck, that lost a model: calls go round them, and come back when they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Exchange, Hang, Reply, Reset, Upstream, error, refusing_port, to_json
from tests.harness import LocalGateway, config_for
from tests.wire.calls import LIMIT, STREAM
from tests.wire.checks import openai_error

HEALTHY = Reply(b"", separate=False)


def engine_config(engine: Upstream, fallback: Upstream, **gateway: Any) -> dict[str, Any]:
    """`m0` on an engine of our own, then `m1`."""
    config = config_for(engine, fallback, gateway=gateway)
    config["upstreams"]["u0"] = {"engine": {"checkpoint": "none", "port": engine.port}, "api_key": "sk-upstream-0"}
    return config


async def plan(gw: LocalGateway) -> list[Mapping[str, Any]]:
    """The attempts that a call would make."""
    told = (await gw.fetch("/v1/route", {"model": "auto", "messages": [{"role": "user", "content": "x"}]})).json()
    attempts: list[Mapping[str, Any]] = told["attempts"]
    return attempts


async def until_first(gw: LocalGateway, model: str) -> None:
    """Wait until calls would begin with that model."""
    async with asyncio.timeout(LIMIT):
        while (await plan(gw))[0]["model"] != model:
            pass


async def upstream_of(gw: LocalGateway, **fields: Any) -> str | None:
    answered = await gw.chat(**fields)
    assert answered.status == 200
    return answered.header("x-turnout-upstream")


@asynccontextmanager
async def loading(engine: Upstream, gw: LocalGateway) -> AsyncIterator[None]:
    """The engine accepts connections and hangs, and says 503 when asked for its health."""
    engine.script(Reply(b"", 503, separate=False), path="/health", times=None)
    engine.script(Hang(), path="/completions", times=None)
    assert await upstream_of(gw, **STREAM) == "u1"  # the one that finds out
    await until_first(gw, "m1")
    yield
    engine.scripts.clear()
    engine.script(HEALTHY, path="/health", times=None)
    await until_first(gw, "m0")


async def test_c48_no_call_waits_for_an_engine_that_loads(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    limits = {"timeouts": {"first_event": 0.5}}
    gw = await gateway(engine_config(upstream, second, **limits), look_seconds=0.02)
    async with loading(upstream, gw):
        before = upstream.count()
        for _ in range(20):
            assert await upstream_of(gw, **STREAM) == "u1"
        assert upstream.count() == before
        assert "its engine is not ready (health 503)" in (await plan(gw))[1]["reason"]
        assert (await gw.fetch("/health/live")).status == 200
    assert await upstream_of(gw) == "u0"
    assert upstream.calls[-1].header("authorization") == "Bearer sk-upstream-0"


async def test_c48_from_refused_connections_to_ready(second: Upstream, gateway: StartGateway) -> None:
    with refusing_port() as port:
        engine = Upstream(port=port)
        gw = await gateway(engine_config(engine, second), look_seconds=0.02)
        assert await upstream_of(gw) == "u1"
        await until_first(gw, "m1")
        assert "its engine does not answer" in (await plan(gw))[1]["reason"]
    engine.script(HEALTHY, path="/health", times=None)
    async with engine:
        await until_first(gw, "m0")
        assert await upstream_of(gw) == "u0"


@pytest.mark.seconds
async def test_c48_a_stuck_engine_leaves_rotation_though_its_health_is_green(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    upstream.script(HEALTHY, path="/health", times=None)
    upstream.script(Hang(), path="/completions", times=None)
    limits = {"timeouts": {"first_event": 0.5}, "breaker": {"failures": 2}}
    gw = await gateway(engine_config(upstream, second, **limits), look_seconds=0.02)
    for _ in range(10):
        assert await upstream_of(gw, **STREAM) == "u1"
    assert upstream.count() == 2


async def test_c48_health_is_asked_with_the_engines_key(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    async def protected(exchange: Exchange) -> None:
        known = exchange.request.header("authorization") == "Bearer sk-upstream-0"
        body = to_json({"data": [{"id": "fake"}]})
        await Reply(body if known else b"{}", 200 if known else 401, separate=False)(exchange)

    for path in ("/health", "/models"):
        upstream.script(protected, path=path, times=None)
    gw = await gateway(engine_config(upstream, second), look_seconds=0.02)
    assert await upstream_of(gw) == "u0"
    async with asyncio.timeout(LIMIT):
        while upstream.count("/models", "GET") < 2:
            await gw.metrics()
    assert (await plan(gw))[0]["model"] == "m0"


async def test_c48_a_model_that_comes_and_goes(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    """An adapter is in the list like any model, or is not there."""
    upstream.script(HEALTHY, path="/health", times=None)
    upstream.models = ["base"]
    gw = await gateway(engine_config(upstream, second), look_seconds=0.02)
    upstream.script(error(404, "The model `fake` does not exist."), path="/completions", times=1)
    assert await upstream_of(gw) == "u1"
    await until_first(gw, "m1")
    assert "does not list the model" in (await plan(gw))[1]["reason"]
    upstream.models.append("fake")
    await until_first(gw, "m0")
    assert await upstream_of(gw) == "u0"
    upstream.models.remove("fake")
    await until_first(gw, "m1")


@pytest.mark.parametrize("fields", [STREAM, {}], ids=["stream", "plain"])
async def test_c48_alone_an_engine_that_is_known_to_load_is_not_asked(
    upstream: Upstream, gateway: StartGateway, fields: dict[str, Any]
) -> None:
    upstream.script(Reply(b"", 503, separate=False), path="/health", times=None)
    upstream.script(error(503, "loading"), path="/completions", times=None)
    gw = await gateway(engine_config(upstream, upstream), look_seconds=0.02)
    async with asyncio.timeout(LIMIT):
        while (answered := await gw.chat(model="m0", **fields)).json()["error"]["code"] != "no_healthy_model":
            pass  # the first look is under way
    asked = upstream.count()
    for _ in range(5):
        answered = await gw.chat(model="m0", **fields)
        openai_error(answered, 503, "no_healthy_model")
        assert answered.header("retry-after") == "5"
    assert answered.json()["error"]["message"] == "m0 via u0: its engine is not ready (health 503)"
    assert upstream.count() == asked
    upstream.scripts.clear()
    upstream.script(HEALTHY, path="/health", times=None)
    async with asyncio.timeout(LIMIT):
        while (await gw.chat(model="m0", **fields)).status != 200:
            pass


async def test_c48_an_engine_that_is_slow_to_tell_is_asked_all_the_same(
    upstream: Upstream, gateway: StartGateway
) -> None:
    """It may be busy with calls."""
    upstream.script(Reset(), path="/health", times=None)
    gw = await gateway(engine_config(upstream, upstream), look_seconds=0.02)
    for _ in range(3):
        assert await upstream_of(gw, model="m0") == "u0"
    async with asyncio.timeout(LIMIT):
        while upstream.count("/health", "GET") < 2:
            await gw.metrics()
    assert await upstream_of(gw, model="m0") == "u0"


@pytest.mark.parametrize("fields", [STREAM, {}], ids=["stream", "plain"])
async def test_c48_alone_a_loading_engine_is_a_503(
    upstream: Upstream, gateway: StartGateway, fields: dict[str, Any]
) -> None:
    upstream.script(error(503, "loading", headers={"retry-after": "60"}), path="/completions", times=None)
    gw = await gateway(engine_config(upstream, upstream), look_seconds=0.02)
    answered = await gw.chat(model="m0", **fields)
    assert (answered.status, answered.header("retry-after")) == (503, "60")
