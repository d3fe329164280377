"""Ten thousand mixed calls over four workers, one of which is killed: the ledger, the metrics and the upstream's own
count of what it produced say the same."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.fakes import Client, Cut, Reply, Sse, Upstream, chunk, completion, post
from tests.fakes.postgres import Postgres
from tests.fakes.redis import RedisServer
from tests.fakes.steps import Step
from tests.fakes.upstream import Exchange
from tests.harness import Gateway, config_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CALLS = 10_000
CLIENTS = 24
KINDS = ("plain", "stream", "failed over", "leaving")
PATH = "/v1/chat/completions"
PRICE = {"input": 3, "cached": 0.3, "output": 15}
SETTLE = 60.0
"""Seconds in which the books have to be closed after the last call."""


def tokens_of(number: int) -> tuple[int, int, int]:
    """Prompt, cached, completion: what the upstream says that this call took."""
    return 100 + number % 57, number % 31, 2 + number % 7


class Producer:
    """An upstream that reports and remembers what it produced for each call that it answered to the end."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.produced: dict[str, tuple[int, int, int]] = {}

    async def __call__(self, exchange: Exchange) -> None:
        asked = exchange.request.json()
        name, kind = asked["user"], asked["metadata"]["kind"]
        if self.fails and kind == "failed over":
            await Reply(b'{"error":{"message":"no"}}', 500, separate=False)(exchange)
            return
        tokens = tokens_of(int(name))
        await self._answer(asked, kind, tokens)(exchange)
        self.produced[name] = tokens

    def _answer(self, asked: dict[str, Any], kind: str, tokens: tuple[int, int, int]) -> Step:
        prompt, cached, count = tokens
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": count,
            "total_tokens": prompt + count,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        if not asked.get("stream"):
            return Reply(completion("x", usage=usage), separate=False)
        words = [chunk(f"w{n} ") for n in range(count)]
        if kind == "leaving":
            return Sse(words * 50, gap=0.02)
        tail = [chunk(finish="stop"), chunk(usage=usage), b"data: [DONE]\n\n"]
        return Sse([chunk("", "assistant"), *words, *tail], separate=False)


class Load:
    """Clients that make the calls one after the other; what each has seen."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._numbers = iter(range(CALLS))
        self._dice = random.Random(7)
        self.whole: set[str] = set()
        """Answered to the last byte."""
        self.cut: set[str] = set()
        """Broken off by the death of a worker."""
        self.left: set[str] = set()

    async def run(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(CLIENTS)))

    async def _client(self) -> None:
        for number in self._numbers:
            kind = self._dice.choices(KINDS, (45, 40, 10, 5))[0]
            name = str(number)
            try:
                async with self._gateway.connect() as client:
                    await self._call(client, name, kind)
            except (Cut, OSError):
                self.cut.add(name)

    async def _call(self, client: Client, name: str, kind: str) -> None:
        stream = kind in ("stream", "leaving") or (kind == "failed over" and int(name) % 2 == 0)
        messages = [{"role": "user", "content": f"call {name}"}]
        body = {"model": "auto", "messages": messages, "user": name, "metadata": {"kind": kind}, "stream": stream}
        await client.send(post(PATH, body, {"x-request-id": f"call-{name}"}))
        response = await client.response()
        if kind != "leaving":
            await response.read()
            assert response.status == 200, (name, response)
            self.whole.add(name)
            return
        await anext(response.pieces())
        client.reset()
        self.left.add(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL for the gateway, and the one for this test."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/ledger.db", f"sqlite:///{tmp_path}/ledger.db"
        return
    with Postgres() as server:
        yield server.url, server.url.replace("postgresql://", "postgresql+asyncpg://")


async def rows(url: str) -> list[dict[str, Any]]:
    """The ledger, read without the gateway's own code."""
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url.replace("sqlite://", "sqlite+aiosqlite://"))
    async with engine.connect() as connection:
        found = (await connection.execute(sa.text("SELECT * FROM calls"))).mappings().all()
    await engine.dispose()
    return [dict(row) for row in found]


async def test_ledger_metrics_and_upstream_agree(database: tuple[str, str]) -> None:
    url, readable = database
    first, second = Producer(fails=True), Producer(fails=False)
    with RedisServer() as redis:
        async with Upstream(default=first) as one, Upstream(default=second) as two:
            config = config_for(
                one,
                two,
                gateway={"redis_url": redis.url, "database_url": url, "breaker": {"failures": 10**6}},
                models={"m0": {"price": PRICE}, "m1": {"price": PRICE}},
                limits={"default": {"requests_per_minute": 10**7, "concurrency": 1000}},
            )
            async with Gateway(config, arguments=("--workers", "4")) as gw:
                load = Load(gw)
                killing = asyncio.create_task(kill_one_in_the_middle(gw, load))
                await load.run()
                assert await killing
                total = await until_booked(gw, readable, load.whole)
                metrics = await gw.metrics()
                assert metrics.total("turnout_in_flight") == 0
                assert metrics.total("turnout_ledger_dropped_total") == 0
    booked = total
    produced = first.produced | second.produced
    by_call = {row["request_id"].removeprefix("call-"): row for row in booked}
    assert len(by_call) == len(booked)  # no call twice
    assert len(load.whole) + len(load.left) + len(load.cut) == CALLS
    assert load.whole <= by_call.keys()
    assert by_call.keys() - load.whole - load.left <= load.cut
    assert len(load.left - by_call.keys()) <= CLIENTS  # they left the worker that was killed before it noticed
    assert len(load.cut) <= CLIENTS * 2

    for name in load.whole:
        row = by_call[name]
        assert (row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"]) == produced[name]
        assert row["outcome"] == "ok"
    assert all(by_call[name]["outcome"] == "client_closed" for name in load.left & by_call.keys())

    for kind in ("prompt", "cached", "completion"):
        assert metrics.total("turnout_tokens_total", kind=kind) == sum(row[f"{kind}_tokens"] for row in booked)
    outcomes = Counter(row["outcome"] for row in booked)
    counted = {o: metrics.total("turnout_requests_total", outcome=o) for o in outcomes}
    assert counted == outcomes
    assert metrics.total("turnout_requests_total") == len(booked)
    nano = sum(row["cost_nano_usd"] for row in booked)
    assert metrics.total("turnout_cost_usd_total") == pytest.approx(nano / 1e9)
    asked = sum(len(json.loads(t) if isinstance(t := row["tried"], str) else t) for row in booked)
    assert metrics.total("turnout_attempts_total") == asked


async def kill_one_in_the_middle(gw: Gateway, load: Load) -> bool:
    while len(load.whole) < CALLS // 3:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    children = Path(f"/proc/{gw.pid}/task/{gw.pid}/children").read_text().split()  # noqa: ASYNC240
    os.kill(int(children[1]), signal.SIGKILL)
    return True


async def until_booked(gw: Gateway, url: str, whole: set[str]) -> list[dict[str, Any]]:
    """The ledger, once it has these calls, nothing is under way and it does not grow any more."""
    before = -1
    async with asyncio.timeout(SETTLE):
        while True:
            with suppress(sa.exc.OperationalError):
                found = await rows(url)
                metrics = await gw.metrics()
                busy = metrics.total("turnout_ledger_queue_depth") + metrics.total("turnout_in_flight")
                known = {row["request_id"].removeprefix("call-") for row in found}
                if whole <= known and not busy and len(found) == before:
                    return found
                before = len(found)
            await asyncio.sleep(1.5)
