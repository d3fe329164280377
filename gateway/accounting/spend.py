"""What keys and teams have spent, in memory: read from the ledger's table beside the calls, never while one waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.database import Database

CLOSED_AGAIN = timedelta(hours=1)
"""How often past days are summed up anew: rows may come late, from the journal of a dead machine."""
_SUMS = """
SELECT key, team, sum(cost_nano_usd), sum(CASE WHEN at_ms >= :month THEN cost_nano_usd ELSE 0 END)
FROM calls WHERE at_ms >= :since AND at_ms < :until GROUP BY key, team
"""

Scope = tuple[str, str]
"""("key" or "team", its name)."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """Nano-dollars of some days."""

    total: Counter[Scope] = field(default_factory=Counter)
    month: Counter[Scope] = field(default_factory=Counter)
    """Of these, what falls into the month of the last day."""


class Spend:
    """The figures as of the last refresh; zero before the first one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._day = datetime.min.replace(tzinfo=UTC)
        """The day that `_today` is about."""
        self._before, self._today = _Sums(), _Sums()
        self._before_at = self._day
        self.known = False
        """There has been a refresh."""

    def spent(self, kind: str, name: str, per: str, now: datetime) -> int:
        """Nano-dollars that a `key` or `team` has spent in the `day`, `month` or `total` that `now` (UTC) is in."""
        scope = (kind, name)
        if per == "total":
            return self._before.total[scope] + self._today.total[scope]
        if per == "month":
            same = (now.year, now.month) == (self._day.year, self._day.month)
            return self._before.month[scope] + self._today.total[scope] if same else 0
        return self._today.total[scope] if now.date() == self._day.date() else 0

    async def refresh(self, now: datetime | None = None) -> None:
        """Read the database. `now` (UTC): the present if not given. Raises DatabaseDown."""
        now = now or datetime.now(UTC)
        day = now.replace(hour=0, minute=0, second=0, microsecond=0)
        before, before_at = self._before, self._before_at
        if day != self._day or now - before_at >= CLOSED_AGAIN:
            before, before_at = await self._sums(None, day), now
        today = await self._sums(day, None)
        self._before, self._before_at, self._today, self._day, self.known = before, before_at, today, day, True

    async def _sums(self, since: datetime | None, until: datetime | None) -> _Sums:
        """Of the days from `since` (None: the first) to before `until` (None: the last)."""
        from sqlalchemy import text

        first_of_month = (until or since or self._day).replace(day=1)
        times = {"since": _ms(since) if since else 0, "until": _ms(until) if until else 1 << 62}
        async with self._database.read(60) as connection:
            rows = (await connection.execute(text(_SUMS), {"month": _ms(first_of_month), **times})).all()
        return _added(rows)


def _added(rows: Iterable[Any]) -> _Sums:
    sums = _Sums()
    for key, team, total, month in rows:
        for scope in (("key", key), ("team", team)) if team is not None else (("key", key),):
            sums.total[scope] += int(total)
            sums.month[scope] += int(month)
    return sums


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
