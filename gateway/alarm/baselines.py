"""Where the baselines are kept: the table `baselines`, by model, checkpoint and kind of answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from gateway.alarm.baseline import Baseline
from gateway.database import Database, DatabaseDown

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

SELECT = "SELECT value FROM baselines WHERE model = :model AND checkpoint = :checkpoint"


class Baselines:
    """Kept in the database; while it is down, or where there is none, each process learns its own and keeps none."""

    def __init__(self, database: Database | None, log: FilteringBoundLogger) -> None:
        self._database, self._log = database, log

    async def of(self, model: str, checkpoint: str) -> list[Baseline]:
        """Those of one checkpoint."""
        from sqlalchemy import text

        if self._database is None:
            return []
        try:
            await self._database.migrate()
            async with self._database.read() as connection:
                rows = await connection.execute(text(SELECT), {"model": model, "checkpoint": checkpoint})
                return self._read([row[0] for row in rows])
        except DatabaseDown as down:
            self._log.warning("baselines of speculation cannot be read: they are learned anew", reason=str(down))
            return []

    async def keep(self, model: str, checkpoint: str, baseline: Baseline) -> Baseline | None:
        """Keep this one, in the place of one that is not final; one that is final stays, and is returned."""
        if self._database is None:
            return None
        place = {"model": model, "checkpoint": checkpoint, "kind": baseline.kind}
        try:
            await self._database.migrate()
            async with self._database.write() as connection:
                return await self._kept(connection, place, baseline)
        except DatabaseDown as down:
            self._log.warning("a baseline of speculation cannot be kept", **place, reason=str(down))
            return None

    async def _kept(self, connection: AsyncConnection, place: dict[str, str], baseline: Baseline) -> Baseline | None:
        from sqlalchemy import text

        where = "WHERE model = :model AND checkpoint = :checkpoint AND kind = :kind"
        old = (await connection.execute(text(f"SELECT value FROM baselines {where}"), place)).scalar()
        known = self._read([old] if old is not None else [])
        if known and known[0].final:
            return known[0]
        await connection.execute(text(f"DELETE FROM baselines {where}"), place)
        row = place | {"value": baseline.to_json(), "at_ms": time.time_ns() // 1_000_000}
        insert = "INSERT INTO baselines (model, checkpoint, kind, value, at_ms) VALUES"
        await connection.execute(text(f"{insert} (:model, :checkpoint, :kind, :value, :at_ms)"), row)
        return None

    def _read(self, values: list[str]) -> list[Baseline]:
        found = []
        for value in values:
            try:
                found.append(Baseline.from_json(value))
            except ValueError as error:
                self._log.warning(str(error))
        return found
