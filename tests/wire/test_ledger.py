"""The ledger of a real process: each finished call is one row, even if the process is killed in the middle of a load;
its sums are the metrics'."""

from __future__ import annotations

import asyncio
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from gateway.database import Database
from tests.fakes import Cut, Exchange, Upstream, error
from tests.fakes.echo import echo
from tests.fakes.postgres import Postgres
from tests.harness import Gateway, config_for

CALLS = 300
SENDERS = 8
WORDS = "one two three"
REFUSALS = {3: error(400), 5: error(500)}
"""By the last digit of the call's number; the others are answered by what was said to them, with usage."""


async def refusing(exchange: Exchange) -> None:
    said = re.search(rb"/(\d)\"", exchange.request.body)
    await REFUSALS.get(int(said[1]) if said else 0, echo)(exchange)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/turnout.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database(url, Path("/"))
    yield database
    await database.close()


async def rows(database: Database) -> list[Any]:
    names = "request_id, outcome, prompt_tokens, completion_tokens, cost_nano_usd, reported"
    async with database.read() as connection:
        return list((await connection.execute(text(f"SELECT {names} FROM calls"))).all())


async def load(gw: Gateway, numbers: Iterable[int]) -> dict[str, int]:
    """Mixed calls from several senders: request id -> status, of those that were answered to their end."""
    answered: dict[str, int] = {}
    left = iter(numbers)

    async def send() -> None:
        for number in left:
            sent = {"x-request-id": f"id-{number}"}
            try:
                answer = await gw.chat(f"{WORDS} /{number % 10}", stream=bool(number % 2), headers=sent)
            except (OSError, Cut):
                return
            answered[f"id-{number}"] = answer.status

    await asyncio.gather(*(send() for _ in range(SENDERS)))
    return answered


async def killed_under_load(gw: Gateway, upstream: Upstream) -> dict[str, int]:
    """What was answered before the gateway was killed in the middle of a load."""
    answered = await load(gw, range(CALLS))
    running = asyncio.create_task(load(gw, count(CALLS)))
    await upstream.call(2 * CALLS)
    gw.signal(signal.SIGKILL)
    await gw.wait()
    return answered | await running


async def test_rows_survive_a_kill_and_agree_with_the_metrics(url: str, database: Database, tmp_path: Path) -> None:
    async with Upstream(default=refusing) as upstream:
        settings = {"database_url": url, "breaker": {"failures": 1_000_000}}
        price = {"m0": {"price": {"input": 1, "output": 10}}}
        config = config_for(upstream, gateway=settings, models=price)
        env = {"TURNOUT_STATE_DIR": str(tmp_path / "state")}
        gw = Gateway(config, env)
        await gw.__aenter__()
        answered = await killed_under_load(gw, upstream)
        with pytest.raises(AssertionError, match="ended with -9"):
            await gw.__aexit__(None, None, None)
        async with Gateway(config, env) as gw:
            more = await load(gw, range(1_000_000, 1_000_000 + CALLS))
            metrics = await gw.metrics()
        found = await rows(database)
    ids = Counter(row.request_id for row in found)
    assert set(ids.values()) == {1}
    assert len(answered) > 2 * CALLS - 2 * SENDERS
    assert answered.keys() | more.keys() <= ids.keys()
    good = [row for row in found if row.outcome == "ok"]
    assert {(row.completion_tokens, row.reported) for row in good} == {(4, True)}
    assert {row.cost_nano_usd == 1_000 * row.prompt_tokens + 40_000 for row in good} == {True}
    last = [row for row in found if row.request_id in more]
    assert metrics.total("turnout_tokens_total", kind="prompt") == sum(row.prompt_tokens for row in last)
    for outcome, number in Counter(row.outcome for row in last).items():
        assert metrics.total("turnout_requests_total", outcome=outcome) == number
    assert {row.outcome for row in last} == {"ok", "invalid_request", "upstream_unavailable"}


async def test_a_spent_budget_stays_spent_after_a_restart(tmp_path: Path) -> None:
    async with Upstream() as upstream:
        config = config_for(
            upstream,
            gateway={"database_url": f"sqlite:///{tmp_path}/turnout.db"},
            models={"m0": {"price": {"input": 10, "output": 10}}},
            keys=[{"name": "ci", "key": "sk-ci", "budget": {"usd": 0.000001, "per": "total"}}],
        )
        statuses = []
        for _ in range(2):
            async with Gateway(config) as gw:
                answers = [await gw.chat(headers={"x-api-key": "sk-ci"}) for _ in range(3)]
                statuses.append([answer.status for answer in answers])
        assert statuses == [[200, 429, 429], [429, 429, 429]]


async def test_a_journal_that_cannot_be_kept_is_said_at_once(tmp_path: Path, url: str) -> None:
    (tmp_path / "file").touch()
    async with Upstream() as upstream:
        config = config_for(upstream, gateway={"database_url": url})
        with pytest.raises(RuntimeError, match=r"ended with 2[\s\S]*TURNOUT_STATE_DIR can name another folder"):
            async with Gateway(config, {"TURNOUT_STATE_DIR": str(tmp_path / "file")}):
                pass
