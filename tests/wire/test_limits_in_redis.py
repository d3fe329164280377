"""Limits that several gateways share through a real redis-server, and what callers see while it is in trouble."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway import clock
from tests.fakes import Hang, Sse, Upstream, chunk
from tests.fakes.redis import RedisServer
from tests.harness import Gateway, LocalGateway, config_for
from tests.wire.calls import LIMIT, ask

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def limited(upstream: Upstream, redis: RedisServer, **limits: Any) -> dict[str, Any]:
    return config_for(upstream, gateway={"redis_url": redis.url}, limits=limits)


@pytest.fixture
async def pair(upstream: Upstream, redis: RedisServer) -> AsyncIterator[list[LocalGateway]]:
    """Two gateways with ten requests a minute and one call at a time for each caller of `m0`."""
    config = limited(upstream, redis, default={"requests_per_minute": 10})
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(LocalGateway(config)) for _ in range(2)]


async def test_c32_a_burst_over_two_gateways(upstream: Upstream, pair: list[LocalGateway]) -> None:
    answers = await asyncio.gather(*(gw.chat() for gw in pair for _ in range(100)))
    assert Counter(a.status for a in answers) == {200: 10, 429: 190}
    assert upstream.count() == 10
    refused = next(a for a in answers if a.status == 429)
    assert 0 < int(refused.header("retry-after") or 0) <= 6
    assert refused.header("x-ratelimit-remaining-requests") == "0"


async def test_c35_a_flushed_script_cache_is_not_noticed(pair: list[LocalGateway], redis: RedisServer) -> None:
    for number in range(6):
        redis.ask("SCRIPT", "FLUSH")
        assert (await pair[number % 2].chat()).status == 200
    assert (await pair[0].metrics()).total("turnout_limit_store_up") == 1


async def test_one_call_at_a_time_over_two_gateways(upstream: Upstream, redis: RedisServer) -> None:
    config = limited(upstream, redis, default={"concurrency": 1})
    async with LocalGateway(config) as one, LocalGateway(config) as two, asyncio.timeout(LIMIT):
        for leaving in (False, True):
            upstream.script(Sse([chunk("a"), Hang()]))
            async with one.connect() as client:
                await client.send(ask())
                await anext((await client.response()).pieces())
                assert (await two.chat()).status == 429
                if leaving:
                    client.reset()
                    await one.logged(outcome="client_closed")
            await one.logged(outcome="client_closed")
            while (await two.chat()).status == 429:  # noqa: ASYNC110 - Redis hears of it beside the call
                await asyncio.sleep(0.01)
            while (await one.chat()).status == 429:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.seconds
async def test_a_redis_that_is_frozen_delays_one_call_and_no_other(
    pair: list[LocalGateway], redis: RedisServer
) -> None:
    gw = pair[0]
    await gw.chat()
    redis.freeze()
    started = clock.now()
    assert (await gw.chat()).status == 200
    first = clock.now() - started
    started = clock.now()
    for _ in range(3):
        assert (await gw.chat()).status == 200
    rest = clock.now() - started
    assert first < 1.0  # a quarter of a second, and what the machine adds
    assert rest < 1.0
    assert (await gw.metrics()).total("turnout_limit_store_up") == 0
    redis.thaw()
    async with asyncio.timeout(LIMIT):
        while (await gw.metrics()).total("turnout_limit_store_up") == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert len(gw.log(level="error")) + len(gw.log(level="warning")) <= 4  # a line for each change, not for each call
    assert (await gw.chat()).status == 200


@pytest.mark.parametrize("policy", ["share", "open", "closed"])
async def test_without_redis_the_configured_policy_holds(upstream: Upstream, policy: str) -> None:
    with RedisServer() as redis:
        url = redis.url
    config = config_for(
        upstream,
        gateway={"redis_url": url},
        limits={"default": {"requests_per_minute": 2}, "on_redis_failure": policy},
    )
    async with LocalGateway(config) as gw:
        statuses = [(await gw.chat()).status for _ in range(4)]
        assert statuses == {"share": [200, 200, 429, 429], "open": [200] * 4, "closed": [503] * 4}[policy]
        if policy == "closed":
            refused = await gw.chat()
            assert refused.json()["error"]["code"] == "limits_unavailable"
            assert refused.header("retry-after") == "1"
            assert upstream.count() == 0
        assert (await gw.fetch("/health/ready")).status == 200
        assert url not in gw.output


@pytest.mark.slow
async def test_a_killed_workers_slots_come_back_after_the_lease_time(upstream: Upstream, redis: RedisServer) -> None:
    config = limited(upstream, redis, default={"concurrency": 1})
    upstream.script(Sse([chunk("a"), Hang()]))
    async with LocalGateway(config) as other, asyncio.timeout(90):
        with pytest.raises(AssertionError, match="ended with -9"):  # noqa: PT012
            async with Gateway(config) as gw, gw.connect() as client:
                await client.send(ask())
                await anext((await client.response()).pieces())
                os.kill(gw.pid, signal.SIGKILL)
                await gw.wait()
        assert (await other.chat()).status == 429
        while (await other.chat()).status != 200:  # noqa: ASYNC110
            await asyncio.sleep(1)


async def test_the_password_of_redis_is_told_to_nobody(upstream: Upstream) -> None:
    with RedisServer("--requirepass", "redis-secret-mark") as redis:
        for password in ("redis-secret-mark", "wrong-secret-mark"):
            url = redis.url.replace("redis://", f"redis://:{password}@")
            config = config_for(upstream, gateway={"redis_url": url}, limits={"default": {"requests_per_minute": 99}})
            async with LocalGateway(config) as gw:
                answer = await gw.chat()
                assert answer.status == 200
                exposition = (await gw.fetch("/metrics")).body.decode()
                up = password == "redis-secret-mark"
                assert (await gw.metrics()).total("turnout_limit_store_up") == up
            for told in (gw.output, exposition, str(answer.headers)):
                assert "secret-mark" not in told


async def test_a_conversation_stays_on_its_model_in_every_gateway(
    upstream: Upstream, second: Upstream, redis: RedisServer
) -> None:
    rules = [{"name": "tidy", "when": {"keywords": ["tidy"]}, "to": "m1"}]
    config = config_for(
        upstream, second, gateway={"redis_url": redis.url}, routes={"auto": {"rules": rules, "fallback": []}}
    )
    session = {"x-session-id": "s1"}
    async with LocalGateway(config) as one, LocalGateway(config) as two:
        assert (await one.chat("tidy up", headers=session)).header("x-turnout-model") == "m1"
        for gw in (two, two, one):
            later = await gw.chat("and now something else", headers=session)
            assert (later.header("x-turnout-model"), later.header("x-turnout-rule")) == ("m1", "tidy")
        assert (await two.chat("and now something else")).header("x-turnout-model") == "m0"
        redis.freeze()
        assert (await two.chat("hello", headers={"x-session-id": "s2"})).header("x-turnout-model") == "m0"
        assert (await two.chat("hello", headers=session)).header("x-turnout-model") == "m1"
        redis.thaw()
