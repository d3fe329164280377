"""Where a supervisor of engines hears that a restart is wanted, and tells gateways of ports: the file's database."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import structlog

from gateway.changes import ASKED, Changes
from gateway.config.runtime import Runtime
from gateway.database import Database, DatabaseDown
from gateway.overrides import Overrides
from serving.engine import EngineFailed

BY = "supervisor"


class Desk:
    """`serving.engine.rolling.Desk` on the changes at run time."""

    def __init__(self, runtime: Runtime, by: str = BY) -> None:
        self._runtime, self._by = runtime, by
        self._database = Database(runtime.gateway.database_url, runtime.file.parent)
        silent = structlog.wrap_logger(structlog.PrintLogger(), processors=[_dropped])
        self._overrides = Overrides(self._database, silent)

    async def clear(self, upstreams: Iterable[str]) -> None:
        """What an earlier supervisor has left behind: its replicas listened elsewhere, these are where the file says. A
        database that is down is left alone."""
        with suppress(DatabaseDown):
            changes = await self.changes()
            for name in upstreams:
                row = changes.of("upstream").get(name)
                moved = row.value.get("moved", {}) if row is not None else {}
                for target in self._runtime.upstreams[name].targets:
                    if target.url in moved:
                        await self._overrides.move_replica(name, target, None, self._by)
                if name in changes.of("engine"):
                    await self._overrides.restarting(name, None, self._by)

    async def changes(self) -> Changes:
        """As they are now. Raises DatabaseDown."""
        await self._database.migrate()
        await self._overrides.refresh()
        return self._overrides.changes

    async def asked(self) -> frozenset[str]:
        """The upstreams whose engines are to be restarted."""
        with suppress(DatabaseDown):
            rows = (await self.changes()).of("engine")
            return frozenset(name for name, row in rows.items() if row.value["state"] == ASKED)
        return frozenset()

    async def tell(self, upstream: str, state: str | None) -> None:
        """How far a restart is; None: it is over. Raises EngineFailed."""
        try:
            await self._database.migrate()
            await self._overrides.restarting(upstream, state, self._by)
        except DatabaseDown as down:
            raise EngineFailed(upstream, f"nobody can be told of its restart: the database is down ({down})") from None

    async def move(self, upstream: str, replica: int, port: int) -> None:
        """This replica listens on that port. Raises EngineFailed."""
        target = self._runtime.upstreams[upstream].targets[replica]
        try:
            await self._database.migrate()
            await self._overrides.move_replica(upstream, target, None if port == target.port else port, self._by)
        except DatabaseDown as down:
            raise EngineFailed(upstream, f"gateways cannot be told its port: the database is down ({down})") from None

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()


def _dropped(*_: object) -> str:
    """Each change has its line in the supervisor's own log."""
    raise structlog.DropEvent
