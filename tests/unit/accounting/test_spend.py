"""What was spent in the current day, month and ever, as the database knows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.accounting.spend import Spend
from gateway.database import Database
from tests.unit.accounting.rows import a_line, fill

pytestmark = pytest.mark.usefixtures("tables_here")

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def at(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


async def test_day_month_and_total(database: Database) -> None:
    spend = Spend(database)
    assert (spend.known, spend.spent("key", "ci", "total", NOW)) == (False, 0)
    await fill(
        database,
        a_line("today", at_ms=at(NOW), cost_nano_usd=1),
        a_line("yesterday", at_ms=at(NOW - timedelta(days=1)), cost_nano_usd=10),
        a_line("first", at_ms=at(datetime(2026, 3, 1, tzinfo=UTC)), cost_nano_usd=100),
        a_line("last-month", at_ms=at(datetime(2026, 3, 1, tzinfo=UTC)) - 1, cost_nano_usd=1000),
        a_line("other", at_ms=at(NOW), key="other", cost_nano_usd=5),
        a_line("alone", at_ms=at(NOW), key="alone", team=None, cost_nano_usd=7),
    )
    await spend.refresh(NOW)
    assert spend.known
    periods = ("day", "month", "total")
    assert [spend.spent("key", "ci", per, NOW) for per in periods] == [1, 111, 1111]
    assert [spend.spent("team", "platform", per, NOW) for per in periods] == [6, 116, 1116]
    assert [spend.spent("key", "alone", per, NOW) for per in periods] == [7, 7, 7]
    assert spend.spent("team", "nobody", "total", NOW) == 0


async def test_a_period_that_has_just_begun(database: Database) -> None:
    spend = Spend(database)
    await fill(database, a_line("a", at_ms=at(NOW), cost_nano_usd=3))
    await spend.refresh(NOW)
    tomorrow, next_month, next_year = NOW + timedelta(days=1), NOW + timedelta(days=25), NOW + timedelta(days=365)
    assert [spend.spent("key", "ci", per, tomorrow) for per in ("day", "month", "total")] == [0, 3, 3]
    assert [spend.spent("key", "ci", per, next_month) for per in ("day", "month", "total")] == [0, 0, 3]
    assert spend.spent("key", "ci", "month", next_year) == 0
    await spend.refresh(next_month)
    assert [spend.spent("key", "ci", per, next_month) for per in ("day", "month", "total")] == [0, 0, 3]


async def test_rows_of_today_are_seen_at_once_and_late_ones_within_the_hour(database: Database) -> None:
    spend = Spend(database)
    await spend.refresh(NOW)
    await fill(database, a_line("late", at_ms=at(NOW - timedelta(days=2)), cost_nano_usd=10))
    await fill(database, a_line("new", at_ms=at(NOW), cost_nano_usd=1))
    await spend.refresh(NOW + timedelta(minutes=1))
    assert spend.spent("key", "ci", "total", NOW) == 1
    await spend.refresh(NOW + timedelta(hours=1))
    assert spend.spent("key", "ci", "total", NOW) == 11
