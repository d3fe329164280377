"""What all calls of this month and of today used, from the ledger: asked now and then while somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol

from gateway import clock
from gateway.clock import Tasks
from gateway.database import DatabaseDown

FRESH_SECONDS = 30.0
FIRST_SECONDS = 1.0
"""What the first snapshot waits for its figures."""
_NONE: Mapping[str, Any] = MappingProxyType({"month": None, "today": None})
_NAMES = MappingProxyType(
    {
        "calls": "calls",
        "prompt_tokens": "prompt_tokens",
        "completion_tokens": "completion_tokens",
        "cost_usd": "usd",
    }
)


class Books(Protocol):
    """The ledger (`accounting.ledger.Ledger`)."""

    def usage(self, by: str, since: str, until: str, key: str | None) -> Awaitable[dict[str, Any]]:
        """See there. Raises DatabaseDown."""


class Totals:
    """The figures as of the last look; none while the database is down."""

    def __init__(self, ledger: Books, tasks: Tasks) -> None:
        self._ledger, self._tasks = ledger, tasks
        self._known = _NONE
        self._looked_at: float | None = None
        self._looking: asyncio.Task[None] | None = None

    async def recent(self) -> Mapping[str, Any]:
        """`month` and `today`, at most FRESH_SECONDS old unless the database is slow; looks again beside the caller."""
        if self._looking is None and (self._looked_at is None or clock.now() - self._looked_at >= FRESH_SECONDS):
            self._looking = self._tasks.spawn(self._look())
        if self._looking is not None and self._looked_at is None:
            await asyncio.wait({self._looking}, timeout=FIRST_SECONDS)
        return self._known

    async def _look(self) -> None:
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        try:
            answer = await self._ledger.usage("day", today.replace(day=1).isoformat(), "", None)
            days: list[dict[str, Any]] = answer["usage"]  # one answer for both: today is never more than its month
            name = today.date().isoformat()
            self._known = {"month": _sum(days), "today": _sum(line for line in days if line["day"] == name)}
        except DatabaseDown:
            self._known = _NONE
        finally:
            self._looked_at, self._looking = clock.now(), None


def _sum(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    lines = list(lines)
    return {name: round(sum(line[figure] for line in lines), 9) for figure, name in _NAMES.items()}
