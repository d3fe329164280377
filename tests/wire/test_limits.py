"""Limits and budgets as callers meet them: over real sockets, with the limits kept in the gateway's process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.config import load
from tests.conftest import StartGateway
from tests.fakes import Hang, Reply, Reset, Sse, Step, Upstream, answer, chunk, completion, error
from tests.harness import config_for
from tests.wire.calls import CHAT, LIMIT, ask

KEYS: dict[str, Any] = {"keys": [{"name": "ci", "key": "sk-ci", "team": "core"}, {"name": "dev", "key": "sk-dev"}]}
SONNET = {"input": 3, "output": 15}


async def test_headers_tell_what_is_left_on_every_answer(upstream: Upstream, gateway: StartGateway) -> None:
    limits = {"default": {"requests_per_minute": 2, "tokens_per_minute": 10_000}}
    gw = await gateway(config_for(upstream, limits=limits))
    first = await gw.chat(max_tokens=100)
    assert first.status == 200
    assert first.header("x-ratelimit-limit-requests") == "2"
    assert first.header("x-ratelimit-remaining-requests") == "1"
    assert first.header("x-ratelimit-reset-requests") == "30s"
    assert first.header("x-ratelimit-limit-tokens") == "10000"
    assert 9_800 < int(first.header("x-ratelimit-remaining-tokens") or 0) < 9_900
    streamed = await gw.chat(stream=True)
    assert streamed.header("x-ratelimit-remaining-requests") == "0"
    refused = await gw.chat()
    assert (refused.status, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert refused.json()["error"]["message"] == "The limit of 2 requests per minute of key 'anonymous' is reached."
    assert 0 < int(refused.header("retry-after") or 0) <= 30
    assert 0 < int(refused.header("retry-after-ms") or 0) <= 30_000
    assert refused.header("x-ratelimit-remaining-requests") == "0"
    assert upstream.count() == 2
    metrics = await gw.metrics()
    assert metrics.total("turnout_limit_rejections_total", limit="key_requests") == 1
    assert metrics.total("turnout_requests_total", outcome="rate_limit_exceeded") == 1


async def test_c32_a_burst_gets_what_the_limit_allows(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, limits={"default": {"requests_per_minute": 10}}))
    answers = await asyncio.gather(*(gw.chat() for _ in range(60)))
    assert sorted(a.status for a in answers) == [200] * 10 + [429] * 50
    assert upstream.count() == 10


async def test_a_bad_request_costs_one_request_at_most(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, limits={"default": {"requests_per_minute": 1}}))
    for wrong in (b"{", b'{"model":"auto"}', b'{"model":"nope","messages":[]}'):
        assert (await gw.fetch(CHAT, wrong)).status in (400, 404)
    assert (await gw.chat()).status == 200


ENDINGS: dict[str, Step] = {
    "whole": Sse(answer("a", "b")),
    "4xx": error(400, "bad"),
    "5xx": error(500, "bad"),
    "dies at once": Reset(),
    "dies in the stream": Sse([chunk("a"), Reset()]),
    "too slow": Sse([Hang()]),
    "stalls": Sse([chunk("a"), Hang()]),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_slot_is_free_again_whatever_the_end(upstream: Upstream, gateway: StartGateway, ending: str) -> None:
    gw = await gateway(
        config_for(
            upstream,
            limits={"default": {"concurrency": 1}},
            gateway={"timeouts": {"first_event": 0.3, "idle": 0.3}, "breaker": {"failures": 50}},
        )
    )
    upstream.script(ENDINGS[ending])
    await gw.chat(stream=True)
    assert (await gw.chat(stream=True)).status == 200


@pytest.mark.parametrize("when", ["before the first byte", "in the stream"])
async def test_a_caller_that_leaves_frees_its_slot(upstream: Upstream, gateway: StartGateway, when: str) -> None:
    gw = await gateway(config_for(upstream, limits={"default": {"concurrency": 1}}))
    upstream.script(Sse([Hang()] if when.startswith("before") else [chunk("a"), Hang()]))
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        await upstream.call()
        if when == "in the stream":
            await anext((await client.response()).pieces())
        assert (await gw.chat()).json()["error"]["code"] == "rate_limit_exceeded"
        client.close()
        await gw.logged(event="call", outcome="client_closed")
    assert (await gw.chat()).status == 200


async def test_who_drops_early_pays_for_what_was_delivered(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, limits={"default": {"tokens_per_minute": 60_000}}))
    upstream.script(Sse([*(chunk(f"w{n} ") for n in range(20)), Hang()]))
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask(max_tokens=50_000))
        pieces = (await client.response()).pieces()
        for _ in range(20):
            await anext(pieces)
        client.close()
        line = await gw.logged(event="call")
    used = int(str(line["prompt"])) + int(str(line["completion"]))
    assert 20 <= used < 100
    left = int((await gw.chat(max_tokens=0)).header("x-ratelimit-remaining-tokens") or 0)
    assert 60_000 - used - 100 < left <= 60_000


async def test_a_model_without_room_gives_way_to_the_next_one(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    gw = await gateway(config_for(upstream, second, limits={"models": {"m0": {"concurrency": 1}}}))
    upstream.script(Sse([chunk("a"), Hang()]))
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        await anext((await client.response()).pieces())
        other = await gw.chat()
        assert (other.status, other.header("x-turnout-model")) == (200, "m1")
        named = await gw.chat(model="m0")
        assert (named.status, named.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert "Model 'm0'" in named.json()["error"]["message"]
    assert (second.count(), upstream.count()) == (1, 1)


async def test_teams_share_and_keys_do_not(upstream: Upstream, gateway: StartGateway) -> None:
    limits = {"default": {"requests_per_minute": 2}, "teams": {"core": {"requests_per_minute": 1}}}
    gw = await gateway(config_for(upstream, limits=limits, **KEYS))
    callers = ("sk-ci", "sk-ci", "sk-dev", "sk-dev", "sk-dev")
    assert [(await gw.chat(headers=bearer(key))).status for key in callers] == [200, 429, 200, 200, 429]


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_a_budget_ends_with_a_refusal_that_sdks_do_not_retry(upstream: Upstream, gateway: StartGateway) -> None:
    keys = [{"name": "ci", "key": "sk-ci", "budget": {"usd": 0.01, "per": "day"}}]
    gw = await gateway(config_for(upstream, models={"m0": {"price": SONNET}}, keys=keys))
    upstream.script(Reply(completion("x", usage=(1000, 400))), times=2)
    for _ in range(2):  # $0.009 each: the second one goes over
        assert (await gw.chat(headers=bearer("sk-ci"))).status == 200
    refused = await gw.chat(headers=bearer("sk-ci"))
    told = refused.json()["error"]
    assert (refused.status, told["code"], told["type"]) == (429, "insufficient_quota", "insufficient_quota")
    assert "budget of $0.01 a day of key 'ci'" in told["message"]
    assert refused.header("x-should-retry") == "false"
    assert upstream.count() == 2
    assert (await gw.metrics()).total("turnout_cost_usd_total") == pytest.approx(0.018)


async def test_counters_survive_a_reload_and_new_limits_count_at_once(
    upstream: Upstream, gateway: StartGateway
) -> None:
    gw = await gateway(config_for(upstream, limits={"default": {"requests_per_minute": 4}}))
    for _ in range(3):
        await gw.chat()
    gw.write_config(config_for(upstream, limits={"default": {"requests_per_minute": 2}}))
    gw.app.gateway.apply(load(gw.file, gw.env))
    assert (await gw.chat()).status == 429  # three quarters of the bucket are used, whatever its size


async def test_a_stream_is_refused_as_json_before_it_begins(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, limits={"default": {"requests_per_minute": 1}}))
    await gw.chat(stream=True)
    refused = await gw.chat(stream=True)
    assert (refused.status, refused.header("content-type")) == (429, "application/json")
    assert refused.json()["error"]["type"] == "rate_limit_error"
