"""Sums by everything that can be asked for, over any time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from gateway.accounting.report import GROUPS, Query, WrongQuery, document, moment, query, usage
from gateway.database import Database
from tests.unit.accounting.rows import a_line, fill

pytestmark = pytest.mark.usefixtures("tables_here")

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def at(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


@pytest.fixture
async def filled(database: Database) -> Database:
    await fill(
        database,
        a_line("a", at_ms=at(NOW), key="ci", model="m0", cost_nano_usd=1),
        a_line("b", at_ms=at(NOW), key="ci", model="m1", cost_nano_usd=2_000_000_001, reported=False),
        a_line("c", at_ms=at(NOW - timedelta(days=1)), key="web", team=None, cost_nano_usd=3),
        a_line("d", at_ms=at(NOW), model=None, outcome="rate_limit_exceeded", prompt_tokens=0, completion_tokens=0),
        a_line("e", at_ms=at(NOW), key="web", outcome="client_closed", cost_nano_usd=0),
    )
    return database


async def test_one_line_for_all(filled: Database) -> None:
    (line,) = await usage(filled, Query())
    assert (line.group, line.calls, line.errors) == ((), 5, 1)
    assert (line.prompt_tokens, line.cached_tokens, line.completion_tokens, line.reasoning_tokens) == (400, 50, 80, 25)
    assert line.cost_usd == Decimal("2.000001505")
    assert line.estimated_share == 0.25


async def test_groups(filled: Database) -> None:
    lines = await usage(filled, query("key, model", "all"))
    found = [(line.group, line.calls, line.errors) for line in lines]
    assert found[0] == (("ci", "m1"), 1, 0)  # the most expensive first
    assert sorted(found, key=str) == sorted(
        [(("ci", "m1"), 1, 0), (("ci", None), 1, 1), (("web", "m0"), 2, 0), (("ci", "m0"), 1, 0)], key=str
    )
    by_team = await usage(filled, query("team", "all"))
    assert {line.group: line.calls for line in by_team} == {("platform",): 4, (None,): 1}
    by_day = await usage(filled, query("day", "all"))
    assert [(line.group, line.calls) for line in by_day] == [(("2026-03-09",), 1), (("2026-03-10",), 4)]
    for group in GROUPS:
        assert sum(line.calls for line in await usage(filled, query(group, "all"))) == 5


async def test_times_and_one_key(filled: Database) -> None:
    assert [line.calls for line in await usage(filled, query("", "2026-03-10"))] == [4]
    assert [line.calls for line in await usage(filled, query("", "", "2026-03-10"))] == [1]
    assert [line.calls for line in await usage(filled, query("", "1d", now=NOW + timedelta(minutes=1)))] == [4]
    assert [line.calls for line in await usage(filled, query("", "all", key="web"))] == [2]
    assert await usage(filled, query("", "2027-01-01")) == []
    assert await usage(filled, query("", "all", key="'; DROP TABLE calls")) == []


async def test_the_document(filled: Database) -> None:
    asked = query("key", "2026-03-09", key="ci")
    found = document(asked, await usage(filled, asked))
    assert found == {
        "by": ["key"],
        "since": "2026-03-09T00:00:00+00:00",
        "until": None,
        "usage": [
            {
                "key": "ci",
                "calls": 3,
                "errors": 1,
                "prompt_tokens": 200,
                "cached_tokens": 30,
                "completion_tokens": 40,
                "reasoning_tokens": 15,
                "cost_usd": 2.000001502,
                "estimated_share": 0.5,
            }
        ],
    }


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("7d", NOW - timedelta(days=7)),
        ("24h", NOW - timedelta(days=1)),
        ("30m", NOW - timedelta(minutes=30)),
        ("2w", NOW - timedelta(days=14)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T08:00", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("2026-03-01T08:00+02:00", datetime(2026, 3, 1, 6, tzinfo=UTC)),
        ("all", None),
        ("", None),
    ],
)
def test_moments(text: str, time: datetime | None) -> None:
    assert moment(text, NOW) == time


@pytest.mark.parametrize("text", ["yesterday", "7", "999999w", "2026-13-01", "-1d"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(WrongQuery, match="is no time"):
        moment(text, NOW)


def test_an_unknown_group() -> None:
    with pytest.raises(WrongQuery, match="cannot be grouped by 'colour'; choose of key, team"):
        query("key,colour", "7d")
