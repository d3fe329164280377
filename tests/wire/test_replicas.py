"""Several addresses of one upstream: shared, kept for a conversation, and none of them missed when it dies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Hang, Reply, Reset, Upstream, WaitFor, completion, error, refusing_port
from tests.fakes.steps import Step
from tests.harness import config_for
from tests.wire.calls import LIMIT, STREAM

REPORT = b"vllm:num_requests_running 40\nvllm:num_requests_waiting 9\nvllm:kv_cache_usage_perc 0.9\n"
LONG = "number {0}: a long conversation about number {0} " + "and so on " * 100


def replicas_config(*replicas: Upstream, fallback: Upstream | None = None, **gateway: Any) -> dict[str, Any]:
    """`m0` on all replicas, then perhaps `m1`."""
    config = config_for(*[replicas[0]] if fallback is None else [replicas[0], fallback], gateway=gateway)
    config["upstreams"]["u0"]["base_url"] = [replica.url for replica in replicas]
    return config


def engine_config(first: Upstream, count: int) -> dict[str, Any]:
    config = config_for(first)
    config["upstreams"]["u0"] = {"engine": {"checkpoint": "none", "port": first.port, "replicas": count}}
    return config


@pytest.fixture
async def neighbours() -> AsyncIterator[tuple[Upstream, Upstream]]:
    """Two upstreams at neighbouring ports."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(Upstream())
        while not _is_free(first.port + 1):
            first = await stack.enter_async_context(Upstream())
        second = await stack.enter_async_context(Upstream(port=first.port + 1))
        yield first, second


def _is_free(port: int) -> bool:
    with socket.socket() as knock:
        try:
            knock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@pytest.mark.parametrize("text", ["short", LONG], ids=["short", "long"])
async def test_a_dead_replica_costs_no_call(upstream: Upstream, gateway: StartGateway, text: str) -> None:
    with refusing_port() as port:
        gw = await gateway(replicas_config(Upstream(port=port), upstream))
        for number in range(40):
            answered = await gw.chat(text.format(number), **(STREAM if number % 2 else {}))
            assert (answered.status, answered.header("x-turnout-attempts")) == (200, "1")
    assert upstream.count() == 40
    assert (await gw.metrics()).total("turnout_attempts_total", result="connect") == 0


async def test_a_replica_that_dies_and_returns(upstream: Upstream, gateway: StartGateway) -> None:
    other = Upstream()
    async with other:
        gw = await gateway(replicas_config(upstream, other, breaker={"open_seconds": 0.2}))
        await asyncio.gather(*(gw.chat() for _ in range(20)))
        assert min(upstream.count(), other.count()) > 0
    for _ in range(20):
        assert (await gw.chat()).status == 200
    async with Upstream(port=other.port) as again, asyncio.timeout(LIMIT):
        while not again.count():
            assert (await gw.chat()).status == 200


@pytest.mark.seconds
async def test_a_frozen_replica_leaves_rotation(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    """What was sent to it is not sent again to another one by itself; the next model answers."""
    async with Upstream() as frozen:
        frozen.script(Hang(), times=None)
        limits = {"timeouts": {"first_event": 0.5}, "breaker": {"failures": 2}}
        gw = await gateway(replicas_config(frozen, upstream, fallback=second, **limits))
        answers = [await gw.chat(**STREAM) for _ in range(30)]
        assert [answer.status for answer in answers] == [200] * 30
        assert (frozen.count(), second.count(), upstream.count()) == (2, 2, 28)


@pytest.mark.parametrize("end", ["killed", "frozen"])
@pytest.mark.seconds
async def test_no_call_is_lost_with_a_replica(
    upstream: Upstream, second: Upstream, gateway: StartGateway, end: str
) -> None:
    """Twenty callers at a time, streams and plain calls. What the replica had taken is answered by the next model."""
    other = Upstream()
    async with other:
        limits = {"timeouts": {"first_event": 1}, "breaker": {"failures": 3}}
        gw = await gateway(replicas_config(upstream, other, fallback=second, **limits))
        answers = []

        async def caller(number: int) -> None:
            for turn in range(10):
                answers.append(await gw.chat(LONG.format(100 * number + turn), **STREAM))
                if len(answers) == 60:
                    other.script(Hang(), times=None)
                    if end == "killed":
                        await other.stop()

        await asyncio.gather(*(caller(number) for number in range(20)))
    assert [answer.status for answer in answers] == [200] * 200
    assert all(answer.body.endswith(b"data: [DONE]\n\n") for answer in answers)
    assert second.count() <= 20
    assert upstream.count() > 100


async def test_calls_go_where_fewer_are_under_way(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    gate = asyncio.Event()
    for up in (upstream, second):
        up.script(WaitFor(gate), Reply(completion("late")), times=None)
    gw = await gateway(replicas_config(upstream, second))
    async with asyncio.timeout(LIMIT):
        calls = []
        for number in range(10):
            calls.append(asyncio.create_task(gw.chat()))
            while upstream.count() + second.count() <= number:
                await gw.metrics()
        assert (upstream.count(), second.count()) == (5, 5)
        gate.set()
        await asyncio.gather(*calls)


async def test_a_conversation_stays_where_its_beginning_is_cached(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    gw = await gateway(replicas_config(upstream, second))
    homes = set()
    for number in range(20):
        before = (upstream.count(), second.count())
        messages = [{"role": "system", "content": LONG.format(number)}]
        for turn in range(3):
            messages.append({"role": "user", "content": f"and {turn}?"})
            assert (await gw.chat(messages=messages)).status == 200
        gained = (upstream.count() - before[0], second.count() - before[1])
        assert sorted(gained) == [0, 3]
        homes.add(gained)
    assert len(homes) == 2


async def test_what_engines_report_is_used(neighbours: tuple[Upstream, Upstream], gateway: StartGateway) -> None:
    """Somebody else keeps the first replica busy."""
    first, second = neighbours
    first.script(Reply(REPORT, separate=False), path="/metrics", times=None)
    for up in neighbours:
        up.script(Reply(b"", separate=False), path="/health", times=None)
    gw = await gateway(engine_config(first, 2), look_seconds=0.02)
    await gw.chat()
    async with asyncio.timeout(LIMIT):
        while second.count("/metrics", "GET") < 2:
            await gw.metrics()
    before = second.count()
    for _ in range(20):
        await gw.chat()
    assert second.count() == before + 20


async def test_an_engine_replica_that_loads_gets_no_call(
    neighbours: tuple[Upstream, Upstream], gateway: StartGateway
) -> None:
    first, second = neighbours
    first.script(Reply(b"", 503, separate=False), path="/health", times=None)
    second.script(Reply(b"", separate=False), path="/health", times=None)
    gw = await gateway(engine_config(first, 2), look_seconds=0.02)
    await gw.chat()
    async with asyncio.timeout(LIMIT):
        while first.count("/health", "GET") < 2:
            await gw.metrics()
    before = first.count()
    for number in range(20):
        await gw.chat(LONG.format(number))
    assert first.count() == before


async def test_one_engine_without_calls_is_never_asked(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(engine_config(upstream, 1), look_seconds=0.02)
    for path in ("/v1/models", "/health/live"):
        assert (await gw.fetch(path)).status == 200
    assert upstream.requests == []


async def test_whoever_scrapes_is_told_of_engines_without_calls(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Reply(b"", separate=False), path="/health", times=None)
    upstream.script(Reply(REPORT, separate=False), path="/metrics", times=None)
    gw = await gateway(engine_config(upstream, 1), look_seconds=0.02)
    async with asyncio.timeout(LIMIT):
        while (await gw.metrics()).total("turnout_engine_up", upstream="u0", replica="0") != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await gw.metrics()).total("turnout_engine_running", upstream="u0") > 0
    assert upstream.count() == 0


WRONG: dict[str, Step] = {
    "500": error(500),
    "429": error(429, headers={"retry-after": "30"}),
    "401": error(401),
    "404": error(404, code="model_not_found"),
    "reset": Reset(),
    "page": Reply(b"<html></html>"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_a_replica_that_fails_costs_no_call(upstream: Upstream, gateway: StartGateway, wrong: Step) -> None:
    """The other address is asked at once, in the same call."""
    async with Upstream() as bad:
        bad.script(wrong, times=None)
        gw = await gateway(replicas_config(bad, upstream))
        for number in range(8):
            answered = await gw.chat(**(STREAM if number % 2 else {}))
            assert (answered.status, answered.header("x-turnout-attempts") in ("1", "2")) == (200, True)
    assert upstream.count() == 8
