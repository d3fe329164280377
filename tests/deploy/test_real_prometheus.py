"""A real Prometheus scrapes a real gateway during a real run, and takes every query of the dashboards and the rules."""

from __future__ import annotations

import asyncio
import math
import signal
from typing import Any

import pytest

from tests.deploy.expressions import DASHBOARDS, METRIC, RULES, everywhere, of_dashboard
from tests.deploy.prometheus import Prometheus
from tests.fakes import DONE, Sse, Upstream, answer, chunk, error
from tests.fakes.redis import RedisServer
from tests.harness import Gateway, config_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ADMIN = "the-admin-key"
JOB = {"job_name": "turnout", "scrape_interval": "1s", "authorization": {"credentials": ADMIN}}
GOOD, LIMITED = 10 + 4, 2
"""Calls of one `traffic`: with the key that may, and with the one that may once a minute."""


def configuration(good: Upstream, bad: Upstream, redis: RedisServer) -> dict[str, Any]:
    """Model `m1` always fails; `split` is an experiment; key `poor` may call once a minute and has a budget."""
    breaker = {"failures": 15, "open_seconds": 600}  # so it opens in the second round
    price = {"price": {"input": 3, "output": 15}}
    return config_for(
        good,
        bad,
        gateway={"redis_url": redis.url, "admin_key": ADMIN, "metrics": "admin", "breaker": breaker},
        models={"m0": price, "m2": {"upstream": "u0", "model": "fake", **price}},
        routes={"auto": {"default": "m1", "fallback": ["m0"]}, "split": {"default": "m0"}},
        experiments={"test": {"route": "split", "unit": "user", "salt": "0", "arms": {"m0": 50, "m2": 50}}},
        keys=[
            {"name": "rich", "key": "rich-key"},
            {"name": "poor", "key": "poor-key", "limits": {"requests_per_minute": 1}, "budget": {"usd": 1}},
        ],
    )


async def traffic(gw: Gateway, upstream: Upstream) -> None:
    """Streams that fall back, one of them speculated on; an experiment with both arms; calls of the limited key."""
    figures = {"speculative_decoding": {"num_spec_steps": 4, "num_draft_tokens": 8, "num_accepted_draft_tokens": 5}}
    upstream.script(Sse([*answer("one", "two")[:-1], chunk(usage=(4, 9), extra={"metrics": figures}), DONE]))
    rich, poor = {"authorization": "Bearer rich-key"}, {"authorization": "Bearer poor-key"}
    for number in range(10):
        assert (await gw.chat("one two three four", headers=rich, stream=number % 2 == 0)).status == 200
    for user in ("a", "b", "c", "d"):
        reply = await gw.chat("one two", model="split", headers=rich, stream=True, user=user)
        assert reply.status == 200, reply.body
    for _ in range(LIMITED):
        await gw.chat("one two", model="m0", headers=poor)


async def reloaded(gw: Gateway, text: str, result: str) -> None:
    """Put a file in the configuration's place, and wait until it is taken or refused."""
    before = await reloads(gw, result)
    gw.write_config(text)
    gw.signal(signal.SIGHUP)
    async with asyncio.timeout(30):
        while await reloads(gw, result) == before:  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0.05)


async def reloads(gw: Gateway, result: str) -> float:
    samples = await gw.metrics({"authorization": f"Bearer {ADMIN}"})
    return samples.total("turnout_config_reloads_total", result=result)


async def run(gw: Gateway, upstream: Upstream, prometheus: Prometheus) -> None:
    """Traffic in two rounds: a counter grows only from its second scrape on."""
    text = gw.file.read_text()
    for number in (1, 2):
        await traffic(gw, upstream)
        await reloaded(gw, text.replace('"salt": "0"', f'"salt": "{number}"'), "ok")
        await reloaded(gw, text.replace('"default": "m1"', '"default": "nowhere"'), "refused")
        await prometheus.until("sum(turnout_requests_total)", number * (GOOD + LIMITED))
        for result in ("ok", "refused"):
            made = await reloads(gw, result)
            await prometheus.until(f'turnout_config_reloads_total{{result="{result}"}}', made)


async def test_every_query_is_accepted_and_answered(upstream: Upstream) -> None:
    async with Upstream() as bad:
        bad.script(error(500, "down"), times=None)
        with RedisServer() as redis:
            async with Gateway(configuration(upstream, bad, redis)) as gw:
                scrape = JOB | {"static_configs": [{"targets": [f"127.0.0.1:{gw.port}"]}]}
                timing = {"evaluation_interval": "1s"}
                whole = {"global": timing, "rule_files": [str(RULES)], "scrape_configs": [scrape]}
                async with Prometheus(whole) as prometheus:
                    await run(gw, upstream, prometheus)
                    await check_queries(prometheus)
                    await check_rules(prometheus)


async def check_queries(prometheus: Prometheus) -> None:
    """All are accepted; those of the dashboards yield numbers, except where an engine would have to speak."""
    for _, _, expr in everywhere():
        await prometheus.query(expr)
    silent = []
    for file in DASHBOARDS:
        for panel, expr in of_dashboard(file):
            named = set(METRIC.findall(expr))
            unseen = any(name.startswith("vllm:") for name in named)
            values = [value for _, value in await prometheus.query(expr)]
            if unseen == any(math.isfinite(value) for value in values):
                silent.append((file.stem, panel, expr, values))
    assert silent == []


async def check_rules(prometheus: Prometheus) -> None:
    """The rules were evaluated without an error, count the calls aright, and see the open breaker."""
    await prometheus.until("sum(turnout:calls_judged:total)", 2 * GOOD + 1)  # what a limit refuses is not judged
    await prometheus.until("sum(turnout:calls_failed:total)", 0)
    await prometheus.until('ALERTS{alertname="TurnoutBreakerOpen",model="m1",alertstate="pending"}', 1)
    await prometheus.until('count(ALERTS{alertname="TurnoutConfigRefused",alertstate="firing"})', 1)
    groups = (await prometheus.ask("rules"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len([where for file, where, _ in everywhere() if file == "rules"])
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
