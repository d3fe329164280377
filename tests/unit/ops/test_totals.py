"""The month's and the day's figures: asked seldom, never waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.clock import Tasks
from gateway.database import DatabaseDown
from gateway.ops import totals
from gateway.ops.totals import Totals

NOW = datetime(2026, 12, 2, 8, 30, tzinfo=UTC)
LINE = {"day": "2026-12-02", "calls": 3, "prompt_tokens": 10, "completion_tokens": 5, "cost_usd": 0.25, "errors": 1}
FIGURES = {"calls": 3, "prompt_tokens": 10, "completion_tokens": 5, "usd": 0.25}


class Clock(datetime):
    """Shows NOW."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return NOW


class Ledger:
    """Answers once it may."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.lines: list[dict[str, Any]] | None = [LINE]

    async def usage(self, by: str, since: str, until: str, key: str | None) -> dict[str, Any]:
        self.asked.append((by, since))
        await self.may_answer.wait()
        if self.lines is None:
            raise DatabaseDown("gone")
        return {"usage": self.lines}


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setattr(totals, "datetime", Clock)
    return Ledger()


@pytest.fixture
async def figures(ledger: Ledger) -> AsyncIterator[Totals]:
    tasks = Tasks()
    yield Totals(ledger, tasks)
    await tasks.close()


async def test_both_come_from_one_answer(ledger: Ledger, figures: Totals) -> None:
    """Else calls that end in between would be of today and not of the month."""
    ledger.lines = [{**LINE, "day": "2026-12-01", "calls": 4}, LINE]
    for _ in range(3):
        known = await figures.recent()
        assert known["today"] == FIGURES
        assert known["month"] == {"calls": 7, "prompt_tokens": 20, "completion_tokens": 10, "usd": 0.5}
    assert ledger.asked == [("day", "2026-12-01T00:00:00+00:00")]


async def test_a_day_without_calls(ledger: Ledger, figures: Totals) -> None:
    ledger.lines = [{**LINE, "day": "2026-12-01"}]
    assert await figures.recent() == {"month": FIGURES, "today": dict.fromkeys(FIGURES, 0)}


async def test_old_figures_are_told_while_new_ones_are_asked_for(ledger: Ledger, figures: Totals) -> None:
    await figures.recent()
    ledger.may_answer.clear()
    figures._looked_at = figures._looked_at and figures._looked_at - totals.FRESH_SECONDS
    ledger.lines = []
    for _ in range(3):
        assert (await figures.recent())["month"] == FIGURES
    assert figures._looking is not None
    looking = figures._looking
    ledger.may_answer.set()
    await looking
    zeros = dict.fromkeys(FIGURES, 0)
    assert await figures.recent() == {"month": zeros, "today": zeros}
    assert len(ledger.asked) == 2


async def test_a_database_that_is_down(ledger: Ledger, figures: Totals) -> None:
    ledger.lines = None
    assert await figures.recent() == {"month": None, "today": None}
    assert await figures.recent() == {"month": None, "today": None}
    assert len(ledger.asked) == 1
