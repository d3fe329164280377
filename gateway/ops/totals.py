"""What all calls of this month and of today used, from the ledger: asked now and then while somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
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
        day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        try:
            self._known = {"month": await self._since(day.replace(day=1)), "today": await self._since(day)}
        except DatabaseDown:
            self._known = _NONE
        finally:
            self._looked_at, self._looking = clock.now(), None

    async def _since(self, moment: datetime) -> dict[str, Any]:
        answer = await self._ledger.usage("", moment.isoformat(), "", None)
        line: dict[str, Any] = next(iter(answer["usage"]), {})
        return {name: line.get(figure, 0) for figure, name in _NAMES.items()}
