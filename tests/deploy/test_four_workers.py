"""A real Prometheus scrapes four workers for a minute (TURNOUT_SCRAPE_SECONDS: longer) while callers invent names."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

import pytest

from gateway import clock
from tests.deploy.prometheus import Prometheus
from tests.fakes import Upstream
from tests.fakes.redis import RedisServer
from tests.harness import Gateway, config_for

SECONDS = float(os.environ.get("TURNOUT_SCRAPE_SECONDS", "60"))
RATE, CLIENTS = 30.0, 6
COUNTERS = (
    "turnout_requests_total",
    "turnout_tokens_total",
    "turnout_attempts_total",
    "turnout_request_seconds_bucket",
    "turnout_request_seconds_sum",
    "turnout_overhead_seconds_count",
)
SERIES = 400
"""More than this gateway has combinations of configured names; far less than the names that callers invent."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 180)]


async def calls(gw: Gateway, until: float, seed: int) -> Counter[str]:
    """Calls with good and with invented names, by the outcome that they must have."""
    dice, counted = random.Random(seed), Counter[str]()
    while clock.now() < until:
        invented = f"invented-{dice.random()}"
        kind = dice.choice(("ok", "ok", "ok", "model_not_found", "page"))
        if kind == "ok":
            answer = await gw.chat(
                "one two", user=invented, headers={"x-task-type": invented}, stream=dice.random() < 0.5
            )
            assert answer.status == 200
        elif kind == "model_not_found":
            assert (await gw.chat("one", model=invented)).status == 404
        else:
            await gw.fetch(f"/v1/{invented}", method=dice.choice(("GET", "PUT", "DELETE")))
        counted[kind] += 1
        await asyncio.sleep(CLIENTS / RATE)
    return counted


async def test_four_workers_are_scraped_as_one() -> None:
    with RedisServer() as redis:
        async with Upstream() as upstream:
            config = config_for(upstream, gateway={"redis_url": redis.url}, limits={"default": {"concurrency": 500}})
            async with Gateway(config, arguments=("--workers", "4")) as gw:
                target = {"targets": [f"127.0.0.1:{gw.port}"]}
                job = {"job_name": "turnout", "scrape_interval": "1s", "static_configs": [target]}
                async with Prometheus({"scrape_configs": [job]}) as prometheus:
                    until = clock.now() + SECONDS
                    counted = sum(await asyncio.gather(*(calls(gw, until, n) for n in range(CLIENTS))), Counter[str]())
                    for outcome in ("ok", "model_not_found"):
                        sums = f'sum(turnout_requests_total{{outcome="{outcome}"}})'
                        async with asyncio.timeout(30):
                            await prometheus.until(sums, counted[outcome])
                    window = f"[{round(SECONDS) + 60}s]"
                    falls = [await prometheus.query(f"sum(resets({name}{window}))") for name in COUNTERS]
                    series = await prometheus.query('count({__name__=~"turnout_.*"})')
                    attempts = await prometheus.query("sum(turnout_attempts_total)")
                    scrapes = await prometheus.query(f"sum(count_over_time(turnout_ledger_dropped_total{window}))")
    assert counted["page"] > SECONDS / 10
    assert [fall[0][1] for fall in falls] == [0] * len(COUNTERS)
    assert series[0][1] < SERIES
    assert attempts[0][1] == counted["ok"]
    assert scrapes[0][1] > SECONDS / 2
    print(f"\n{SECONDS:g} s, {scrapes[0][1]:g} scrapes, {dict(counted)}, {series[0][1]:g} series")
