"""The operations page's API over real sockets: what is changed, in every process, and what is told."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.database import Database
from tests.conftest import StartGateway
from tests.fakes import Cut, Hang, Reply, Sse, Upstream, WaitFor, chunk, error, request
from tests.fakes.chat import DONE
from tests.harness import Gateway, LocalGateway, config_for
from tests.wire.calls import LIMIT, payloads
from tests.wire.checks import openai_error
from tests.wire.operating import ADMIN, KEY, SETTINGS, admin, events_of, login

BOUND = 3.0
"""A change counts everywhere within a second; three, so that a busy machine does not fail the test."""
ANSWER = b'{"choices":[{"index":0,"message":{"content":"hi"}}]}'


@pytest.fixture
async def gw(upstream: Upstream, second: Upstream, gateway: StartGateway, tmp_path: Path) -> LocalGateway:
    """`auto` splits between `m0` and `m1`, and falls back to the other one."""
    split = {"e": {"route": "auto", "arms": {"m0": 1, "m1": 0}, "unit": "key"}}
    config = config_for(upstream, second, gateway=SETTINGS, experiments=split)
    return await gateway(config, database=Database("sqlite:///t.db", tmp_path))


# -- what changes do


async def test_a_closed_model_is_never_tried(gw: LocalGateway, upstream: Upstream, second: Upstream) -> None:
    assert (await gw.chat()).header("x-turnout-model") == "m0"
    closed = {"closed": True, "reason": "its disk is full"}
    assert await admin(gw, "models/m0", closed) == {"name": "m0", **closed}
    assert (await gw.chat()).header("x-turnout-model") == "m1"
    refused = openai_error(await gw.chat(model="m0"), 503, "no_healthy_model")
    assert "m0: closed by its operator: its disk is full" in refused["message"]
    second.script(error(500), error(500))
    failed = openai_error(await gw.chat(), 502)
    assert "m0: closed by its operator: its disk is full; then m1 via u1" in failed["message"]
    plan = await admin(gw, "route", {"model": "auto", "messages": []})
    assert plan["skipped"] == [{"model": "m0", "reason": "closed by its operator: its disk is full"}]
    own = await gw.fetch("/v1/route", {"model": "auto", "messages": []})
    assert own.json()["skipped"] == plan["skipped"]
    assert upstream.count() == 1
    (model, _) = (await admin(gw, "state"))["models"]
    assert (model["closed"]["reason"], model["closed"]["by"]) == ("its disk is full", "admin API, 127.0.0.1")
    await admin(gw, "models/m0", {"closed": False})
    assert (await gw.chat()).header("x-turnout-model") == "m0"
    assert (await admin(gw, "state"))["models"][0]["closed"] is None


async def test_with_all_models_closed_the_gateway_is_not_ready(gw: LocalGateway) -> None:
    for name in ("m0", "m1"):
        await admin(gw, f"models/{name}", {"closed": True})
    ready = await gw.fetch("/health/ready")
    assert (ready.status, ready.json()["unusable"]["auto"]["m1"]) == (503, "closed by its operator")
    assert (await admin(gw, "state"))["health"]["ready"] is False


async def test_a_drained_replica_ends_what_it_has_and_gets_nothing_new(
    upstream: Upstream, second: Upstream, gateway: StartGateway, tmp_path: Path
) -> None:
    config = config_for(upstream, gateway=SETTINGS, upstreams={"u0": {"base_url": [upstream.url, second.url]}})
    gw = await gateway(config, database=Database("sqlite:///t.db", tmp_path))
    await admin(gw, "upstreams/u0/replicas/1", {"drained": True})
    gate = asyncio.Event()
    upstream.script(Reply([ANSWER[:9], WaitFor(gate), ANSWER[9:]]))
    running = asyncio.create_task(gw.chat())
    await upstream.call()
    await admin(gw, "upstreams/u0/replicas/1", {"drained": False})
    await admin(gw, "upstreams/u0/replicas/0", {"drained": True})
    first, other = (await admin(gw, "state"))["upstreams"][0]["replicas"]
    assert (first["drained"], first["in_flight"], other["drained"]) == (True, 1, False)
    for number in range(10):
        assert (await gw.chat(f"a conversation of its own, number {number}" * 20)).status == 200
    gate.set()
    assert (await running).body == ANSWER
    assert (upstream.count(), second.count()) == (1, 10)
    await admin(gw, "upstreams/u0/replicas/1", {"drained": True})
    message = openai_error(await gw.chat(), 503, "no_healthy_model")["message"]
    assert "upstream 'u0' is off: all its replicas are drained" in message
    first = (await admin(gw, "state"))["upstreams"][0]["replicas"][0]
    assert (first["drained"], first["in_flight"]) == (True, 0)


@pytest.mark.seconds
async def test_a_split_is_changed(gw: LocalGateway, second: Upstream) -> None:
    assert (await gw.chat()).header("x-turnout-arm") == "m0"
    changed = await admin(gw, "experiments/e", {"arms": {"m1": 3}})
    assert changed == {"name": "e", "arms": {"m1": 3.0}, "overridden": True}
    answer = await gw.chat()
    assert (answer.header("x-turnout-arm"), second.count()) == ("m1", 1)
    (experiment,) = (await admin(gw, "state"))["experiments"]
    assert (experiment["overridden"], experiment["exposures"]) == (True, {"m0": 1, "m1": 1})
    wrong = await admin(gw, "experiments/e", {"arms": {"m1": 0}}, 400)
    assert wrong["error"]["message"] == "arms: all weights are 0, so no arm could ever be chosen."
    back = await admin(gw, "experiments/e", {"arms": None})
    assert back == {"name": "e", "arms": {"m0": 1.0, "m1": 0.0}, "overridden": False}
    assert (await gw.chat()).header("x-turnout-arm") == "m0"


@pytest.mark.seconds
async def test_changes_outlive_a_reload_that_keeps_their_model(
    upstream: Upstream, second: Upstream, tmp_path: Path
) -> None:
    config = config_for(upstream, second, gateway=SETTINGS)
    async with Gateway(config) as gw:
        await admin(gw, "models/m0", {"closed": True})
        gw.write_config(
            config | {"routes": {"auto": {"default": "m0", "fallback": ["m1"]}, "other": {"default": "m1"}}}
        )
        assert await admin(gw, "reload", {}) == {"result": "ok", "problems": ""}
        assert (await gw.chat()).header("x-turnout-model") == "m1"
        assert await admin(gw, "reload", {}) == {"result": "same", "problems": ""}
        gw.write_config("version: 2")
        refused = await admin(gw, "reload", {})
        assert (refused["result"], "version" in refused["problems"]) == ("refused", True)
        assert (await admin(gw, "state"))["config"]["refused"] == refused["problems"]
        only = config_for(second, gateway=SETTINGS)
        gw.write_config(
            only | {"models": {"new": {"upstream": "u0", "model": "x"}}, "routes": {"auto": {"default": "new"}}}
        )
        assert (await admin(gw, "reload", {}))["result"] == "ok"
        assert (await gw.chat()).header("x-turnout-model") == "new"
        (change,) = (await admin(gw, "state"))["overrides"]
        assert change["without_effect"] == "the file has no model 'm0'"
        await gw.logged(event="a change at run time has no effect", reason="the file has no model 'm0'")
        actions = [row["action"] for row in await admin(gw, "audit")]
        assert actions == ["reload"] * 4 + ["models.close"]


async def test_without_the_database_nothing_changes_and_calls_go_on(
    upstream: Upstream, gateway: StartGateway, tmp_path: Path
) -> None:
    config = config_for(upstream, gateway=SETTINGS, experiments={"e": {"route": "auto", "arms": {"m0": 1}}})
    gw = await gateway(config, database=Database("sqlite:///missing/t.db", tmp_path))
    for path, body in (
        ("models/m0", {"closed": True}),
        ("upstreams/u0/replicas/0", {"drained": True}),
        ("experiments/e", {"arms": {"m0": 2}}),
    ):
        assert "database does not answer" in (await admin(gw, path, body, 503))["error"]["message"]
    for path in ("errors", "audit", "requests/x"):
        await admin(gw, path, status=503)
    state = await admin(gw, "state")
    assert (state["health"]["database"], state["month"], state["health"]["ready"]) == ("down", None, True)
    assert (await gw.chat()).status == 200


# -- several processes


@pytest.mark.slow
async def test_two_processes_agree_within_a_second_and_a_restart_keeps_it(
    upstream: Upstream, second: Upstream, tmp_path: Path
) -> None:
    env = {"DATABASE": f"sqlite:///{tmp_path}/shared.db"}
    config = config_for(upstream, second, gateway=SETTINGS | {"database_url": "${DATABASE}"})

    async def agree(gateways: list[Gateway], model: str) -> float:
        began = time.monotonic()
        for gw in gateways:
            while (await gw.chat()).header("x-turnout-model") != model:
                assert time.monotonic() - began < BOUND
                await asyncio.sleep(0.02)
        return time.monotonic() - began

    async with AsyncExitStack() as stack:
        first, other = [await stack.enter_async_context(Gateway(config, env)) for _ in range(2)]
        await agree([first, other], "m0")
        await admin(first, "models/m0", {"closed": True, "reason": "x"})
        times = [await agree([first, other], "m1")]
        await admin(other, "models/m0", {"closed": False})
        times.append(await agree([other, first], "m0"))
        await admin(other, "upstreams/u0/replicas/0", {"drained": True})
        times.append(await agree([other, first], "m1"))
        assert (await admin(first, "state"))["upstreams"][0]["replicas"][0]["drained"] is True
        first.write_config(config | {"routes": {"auto": {"default": "m1"}}})
        other.write_config(config | {"routes": {"auto": {"default": "m1"}}})
        print(json.dumps(times))
    async with Gateway(config, env) as restarted:
        assert (await restarted.chat()).header("x-turnout-model") == "m1"
        assert (await admin(restarted, "state"))["upstreams"][0]["replicas"][0]["drained"] is True


@pytest.mark.slow
async def test_all_workers_are_told_of_and_follow(upstream: Upstream, second: Upstream) -> None:
    redis = {"redis_url": "redis://127.0.0.1:1/0"}  # nobody answers there, and no limit asks
    config = config_for(upstream, second, gateway=SETTINGS | redis)
    async with Gateway(config, arguments=("--workers", "2")) as gw, asyncio.timeout(LIMIT * 2):
        while (await admin(gw, "state"))["workers"] < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for _ in range(20):
            assert (await gw.chat()).header("x-turnout-model") == "m0"
        for _ in range(4):  # whichever worker answers
            (row,) = (await admin(gw, "state"))["counters"]["requests"]
            assert (row["model"], row["count"]) == ("m0", 20)
        await admin(gw, "models/m0", {"closed": True})
        await asyncio.sleep(BOUND)  # by then every worker has to know; which one answers cannot be chosen
        for _ in range(20):
            assert (await gw.chat()).header("x-turnout-model") == "m1"
        for _ in range(4):
            state = await admin(gw, "state")
            assert (state["workers"], state["models"][0]["closed"]["reason"]) == (2, "")


# -- what is told


@pytest.mark.seconds
async def test_events(gw: LocalGateway) -> None:
    page = await login(gw)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(request("GET", "/admin/events", {"cookie": page["cookie"]}))
        answer = await client.response()
        assert (answer.status, answer.header("content-type")) == (200, "text/event-stream; charset=utf-8")
        events = events_of(answer)
        first = await anext(events)
        assert (await gw.chat()).status == 200
        await admin(gw, "models/m1", {"closed": True})
        later = await anext(events)
        assert first["counters"]["requests"] == []
        assert later["counters"]["requests"] == [
            {"route": "auto", "model": "m0", "upstream": "u0", "outcome": "ok", "count": 1.0}
        ]
        assert later["models"][1]["closed"]["reason"] == ""
        assert first.keys() == later.keys() == (await admin(gw, "state")).keys()
    async with asyncio.timeout(LIMIT):
        while len(gw.app.gateway.watchers):  # noqa: ASYNC110 - the page has left
            await asyncio.sleep(0.01)


@pytest.mark.seconds
async def test_a_slow_page_is_cut_off(gw: LocalGateway) -> None:
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(request("GET", "/admin/events", ADMIN))
        events = events_of(await client.response())
        await anext(events)
        (listener,) = gw.app.gateway.watchers._listeners
        listener.drop()  # as the producer does
        with pytest.raises(Cut):
            await anext(events)
        while len(gw.app.gateway.watchers):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.seconds
async def test_no_more_pages_than_can_be_told(gw: LocalGateway) -> None:
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        for _ in range(32):
            client = await stack.enter_async_context(gw.connect())
            await client.send(request("GET", "/admin/events", ADMIN))
            assert (await client.response()).status == 200
        refused = await gw.fetch("/admin/events", headers=ADMIN)
        openai_error(refused, 429, "rate_limit_exceeded")
        assert refused.header("retry-after") is not None


@pytest.mark.seconds
async def test_a_page_does_not_hold_the_shutdown_up(upstream: Upstream) -> None:
    async with Gateway(config_for(upstream, gateway=SETTINGS)) as gw, asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(request("GET", "/admin/events", ADMIN))
        answer = await client.response()
        events = events_of(answer)
        await anext(events)
        gw._process.terminate()
        assert [event async for event in events] == []
        assert answer.complete
        assert await gw.wait() == 0


@pytest.mark.seconds
async def test_a_try_is_an_ordinary_call_of_the_operators(
    upstream: Upstream, gateway: StartGateway, tmp_path: Path
) -> None:
    limits = {"default": {"requests_per_minute": 1}}
    config = config_for(upstream, gateway=SETTINGS, limits=limits, keys=[{"name": "ci", "key": "sk-of-ci"}])
    gw = await gateway(config, database=Database("sqlite:///t.db", tmp_path))
    page = await login(gw)
    body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    for _ in range(3):
        answer = await gw.fetch("/admin/try", body, headers=page)
        assert (answer.status, answer.header("x-turnout-model")) == (200, "m0")
        assert payloads(answer.body)[-1] == "[DONE]"
        assert len([name for name, _ in answer.headers if name.lower() == "x-request-id"]) == 1
    call = gw.calls()[-1]
    assert (call["key"], call["id"]) == ("ops", answer.header("x-request-id"))
    (line,) = gw.log(event="operator", action="try", id=call["id"])
    assert line["by"].startswith("operations page, session ")
    sent = upstream.calls[-1]
    assert not any(KEY in value or "turnout_ops" in value for _, value in sent.headers)
    bare = {"cookie": page["cookie"]}
    openai_error(await gw.fetch("/admin/try", body, headers=bare), 403)
    openai_error(await gw.fetch("/admin/try", body), 401, "invalid_api_key")
    openai_error(await gw.fetch("/admin/try", {"model": "no", "messages": []}, headers=page), 404, "model_not_found")


async def test_a_try_whose_page_is_closed_ends(gw: LocalGateway, upstream: Upstream) -> None:
    upstream.script(Sse([chunk("a"), Hang()]))
    async with asyncio.timeout(LIMIT):
        async with gw.connect() as client:
            body = {"model": "auto", "stream": True, "messages": []}
            await client.send(request("POST", "/admin/try", ADMIN, body))
            await anext((await client.response()).pieces())
        await (await upstream.call()).closed.wait()
        await gw.logged(event="call", outcome="client_closed", key="ops")


@pytest.mark.seconds
async def test_the_story_of_one_request(upstream: Upstream, second: Upstream) -> None:
    upstream.script(error(500), times=None)
    second.script(Sse([chunk("a"), chunk(finish="stop"), DONE]))
    config = config_for(upstream, second, gateway=SETTINGS)
    async with Gateway(config) as gw, asyncio.timeout(LIMIT):
        assert (await gw.chat(stream=True, headers={"x-request-id": "mine"})).status == 200
        openai_error(await gw.chat(model="m0"), 502)
        while (answer := await gw.fetch("/admin/requests/mine", headers=ADMIN)).status == 404:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        (call,) = answer.json()["calls"]
        tried = [(attempt["model"], attempt["cause"]) for attempt in call["tried"]]
        assert (call["rule"], call["outcome"], tried) == ("default", "ok", [("m0", "server_error"), ("m1", "")])
        while not (failed := await admin(gw, "errors")):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert [(row["outcome"], row["status"]) for row in failed] == [("upstream_unavailable", 502)]
        assert failed[0]["at"] == pytest.approx(time.time(), abs=60)
