"""Changes at run time (`changes.py`): how they are kept, made and seen by all processes.

They live in the database, override `routing.yaml`, and survive restarts. Every process watches them beside its calls;
while the database is down the last known ones stay in force.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from structlog.typing import FilteringBoundLogger

from gateway.changes import ASKED, Changes, Kind, Override, Value
from gateway.clock import Tasks
from gateway.config.runtime import Runtime, Target
from gateway.database import Database, DatabaseDown

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

POLL_SECONDS = 0.4
"""Between two questions whether something has changed: well below the second that is promised."""
LONGEST_PAUSE = 2.0
"""Between two attempts while the database is down."""
START_SECONDS = 5.0
"""How long a start waits for the changes; then the gateway serves as its file says, until they are there."""
LOOK_SECONDS = 2.0
AUDIT_SECONDS = 5.0
_SETTINGS = ("pepper", "overrides_version", "reloads")


class Overrides:
    """The changes as one process knows them, and the way to make them."""

    def __init__(
        self,
        database: Database,
        log: FilteringBoundLogger,
        changed: Callable[[], None] = lambda: None,
        reload: Callable[[], None] = lambda: None,
        every: float = POLL_SECONDS,
    ) -> None:
        """`changed` is called when `changes` are others than before, `reload` when another process wants its siblings
        to read their files again. `every`: seconds between two looks."""
        self.database = database
        self.changes = Changes()
        self._log, self._changed, self._reload = log, changed, reload
        self._every = self._pause = every
        self._tasks = Tasks()
        self._reading = asyncio.Lock()
        self._mark: Mapping[str, str] | None = None
        self._looked = asyncio.Event()
        self._down: str | None = None

    @property
    def up(self) -> bool:
        """The database has answered last time."""
        return self._mark is not None and self._down is None

    async def start(self) -> None:
        """Read them, waiting START_SECONDS at most, and keep up with them until `close`."""
        self._tasks.spawn(self._watch())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._looked.wait(), START_SECONDS)

    async def close(self) -> None:
        """Stop. The database is its owner's to close."""
        await self._tasks.close()

    async def _watch(self) -> None:
        while True:
            try:
                if self._mark is None:
                    await self.database.migrate()
                await self.refresh()
                self._tell(None)
            except DatabaseDown as down:
                self._tell(str(down))
            self._looked.set()
            await asyncio.sleep(self._pause)

    async def refresh(self) -> None:
        """Take over what has changed. Raises DatabaseDown."""
        async with self._reading:
            before = self._mark
            async with self.database.read(LOOK_SECONDS) as connection:
                mark = await _settings(connection)
                other = before is None or any(mark[name] != before[name] for name in _SETTINGS[:2])
                changes = Changes(await _rows(connection)) if other else self.changes
            self._mark = mark
            if changes != self.changes:
                self.changes = changes
                self._changed()
            if before is not None and before["pepper"] == mark["pepper"] and before["reloads"] != mark["reloads"]:
                self._reload()

    def _tell(self, down: str | None) -> None:
        """One line in the log for each change, and the pause before the next look."""
        self._pause = self._every if down is None else min(LONGEST_PAUSE, self._pause * 2)
        place = self.database.place.name
        if down is not None and self._down is None:
            text = "changes at run time cannot be read: those that are known stay in force"
            self._log.error(text, database=place, reason=down, known=len(self.changes.rows))
        elif down is None and self._down is not None:
            self._log.info("changes at run time are read again", database=place, known=len(self.changes.rows))
        self._down = down

    # -- changing: each is one transaction with its row of the audit, and in force here when it returns

    async def close_model(self, name: str, closed: bool, reason: str, by: str) -> None:
        """Have a model never tried, or tried again. Raises DatabaseDown."""
        value = {"reason": reason} if closed else None
        await self._change("model", name, lambda old: value, by, "models.close" if closed else "models.open", value)

    async def move_traffic(self, model: str, kind: str, reason: str | None, by: str) -> None:
        """Have calls of a kind (`tool`, `json`) go to the next model; None: no longer. Raises DatabaseDown."""

        def edited(old: Value | None) -> Value | None:
            moved = _edited((old or {}).get("moved", {}), kind, reason)
            return {"moved": moved} if moved else None

        action = "traffic.return" if reason is None else "traffic.move"
        await self._change("traffic", model, edited, by, action, {"kind": kind, "reason": reason or ""})

    async def drain(self, upstream: str, target: Target, drained: bool, by: str) -> None:
        """Give a replica (its address in the file) no new calls, or some again. Raises DatabaseDown."""

        def edited(old: Value) -> Value:
            others = [url for url in old.get("drained", ()) if url != target.url]
            return {**old, "drained": [*others, target.url] if drained else others}

        action = "replicas.drain" if drained else "replicas.return"
        await self._change_replicas(upstream, edited, by, action, target, {})

    async def move_replica(self, upstream: str, target: Target, port: int | None, by: str) -> None:
        """A replica (its address in the file) listens on another port from now on; None: on the file's. Raises
        DatabaseDown."""

        def edited(old: Value) -> Value:
            return {**old, "moved": _edited(old.get("moved", {}), target.url, port)}

        await self._change_replicas(upstream, edited, by, "replicas.move", target, {"port": port or target.port})

    async def restarting(self, upstream: str, state: str | None, by: str) -> None:
        """Ask for a rolling restart of an engine, or say how far it is; None: it is over. Raises DatabaseDown."""

        def edited(old: Value | None) -> Value | None:
            asked = now_ms() if old is None or state == ASKED else old["asked"]
            return None if state is None else {"asked": asked, "state": state}

        await self._change("engine", upstream, edited, by, "engines.restart", {"state": state or "over"})

    async def _change_replicas(
        self, upstream: str, edited: Callable[[Value], Value], by: str, action: str, target: Target, detail: Value
    ) -> None:
        def kept(old: Value | None) -> Value | None:
            return {name: value for name, value in edited(old or {}).items() if value} or None

        address = {"address": f"{target.host}:{target.port}"}
        await self._change("upstream", upstream, kept, by, action, address | detail)

    async def set_arms(self, experiment: str, arms: Mapping[str, float] | None, by: str) -> None:
        """Give an experiment other weights; None: those of the file. Raises DatabaseDown."""
        value = None if arms is None else {"arms": dict(arms)}
        action = "experiments.reset" if arms is None else "experiments.split"
        await self._change("experiment", experiment, lambda old: value, by, action, value)

    async def ask_reload(self, by: str, detail: Value) -> None:
        """Have all other processes of this database read their files again. Raises DatabaseDown."""
        async with self.database.write() as connection:
            await _next(connection, "reloads")
            await note(connection, by, "reload", "", detail)
            if self._mark is not None:  # this process has done it
                self._mark = {**self._mark, "reloads": (await _settings(connection))["reloads"]}

    async def record(self, by: str, action: str, target: str, detail: Value) -> None:
        """A row of the audit for what changes nothing. Raises DatabaseDown."""
        async with self.database.write() as connection:
            await note(connection, by, action, target, detail)

    async def audited(self, most: int) -> list[Value]:
        """The last rows of the audit, newest first. Raises DatabaseDown."""
        from sqlalchemy import text

        columns = "at_ms, actor, action, target, CAST(detail AS TEXT)"
        statement = text(f"SELECT {columns} FROM audit ORDER BY id DESC LIMIT :most")
        async with self.database.read(AUDIT_SECONDS) as connection:
            rows = (await connection.execute(statement, {"most": most})).all()
        names = ("at", "actor", "action", "target", "detail")
        return [dict(zip(names, (r[0] / 1000, *r[1:4], msgspec.json.decode(r[4])), strict=True)) for r in rows]

    async def _change(
        self,
        kind: Kind,
        name: str,
        edited: Callable[[Value | None], Value | None],
        by: str,
        action: str,
        detail: Value | None,
    ) -> None:
        from sqlalchemy import text

        who: dict[str, Any] = {"kind": kind, "name": name}
        async with self.database.write() as connection:
            await _next(connection, "overrides_version")  # holds its row: changes come one after another
            where = "FROM overrides WHERE kind = :kind AND name = :name"
            old = (await connection.execute(text(f"SELECT value {where}"), who)).scalar()
            value = edited(None if old is None else msgspec.json.decode(old))
            await connection.execute(text(f"DELETE {where}"), who)
            if value is not None:
                row = who | {"value": _json(value), "at_ms": now_ms(), "actor": by}
                insert = "INSERT INTO overrides (kind, name, value, at_ms, actor) VALUES"
                await connection.execute(text(f"{insert} (:kind, :name, :value, :at_ms, :actor)"), row)
            await note(connection, by, action, name, detail or {})
        self._log.info("changed at run time", action=action, target=name, by=by, **(detail or {}))
        with suppress(DatabaseDown):  # it is done; this process sees it a little later
            await self.refresh()


async def _impossible(*_: Any, **__: Any) -> NoReturn:
    """Raises DatabaseDown."""
    raise DatabaseDown("there is none")


class NoOverrides:
    """Nothing is changed at run time, and nothing can be: there is no database."""

    changes = Changes()
    up = False

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    close_model = staticmethod(_impossible)
    move_traffic = staticmethod(_impossible)
    drain = staticmethod(_impossible)
    move_replica = staticmethod(_impossible)
    restarting = staticmethod(_impossible)
    set_arms = staticmethod(_impossible)
    ask_reload = staticmethod(_impossible)
    record = staticmethod(_impossible)
    audited = staticmethod(_impossible)


async def stored(runtime: Runtime) -> Changes:
    """The changes that a gateway with this configuration has, for commands; none where the database's tables are of an
    earlier version. Raises DatabaseDown, WrongUrl."""
    from sqlalchemy import inspect

    database = Database(runtime.gateway.database_url, runtime.file.parent)
    try:
        async with database.read(LOOK_SECONDS) as connection:
            made = await connection.run_sync(lambda c: inspect(c).has_table("overrides"))
            return Changes(await _rows(connection) if made else ())
    finally:
        await database.close()


async def note(connection: AsyncConnection, by: str, action: str, target: str, detail: Value) -> None:
    """A row of the audit."""
    from sqlalchemy import text

    insert = (
        "INSERT INTO audit (at_ms, actor, action, target, detail) VALUES (:at_ms, :actor, :action, :target, :detail)"
    )
    row = {"at_ms": now_ms(), "actor": by, "action": action, "target": target, "detail": _json(detail)}
    await connection.execute(text(insert), row)


async def _settings(connection: AsyncConnection) -> Mapping[str, str]:
    from sqlalchemy import text

    names = ", ".join(f"'{name}'" for name in _SETTINGS)
    rows = await connection.execute(text(f"SELECT name, value FROM settings WHERE name IN ({names})"))
    settings = dict(map(tuple, rows))
    if len(settings) < len(_SETTINGS):
        raise DatabaseDown("its table `settings` lacks the version of the changes at run time")
    return settings


async def _rows(connection: AsyncConnection) -> tuple[Override, ...]:
    from sqlalchemy import text

    rows: Iterable[Any] = await connection.execute(
        text("SELECT kind, name, value, at_ms, actor FROM overrides ORDER BY kind, name")
    )
    return tuple(Override(kind, name, msgspec.json.decode(value), at / 1000, by) for kind, name, value, at, by in rows)


async def _next(connection: AsyncConnection, counter: str) -> None:
    from sqlalchemy import text

    statement = "UPDATE settings SET value = CAST(CAST(value AS BIGINT) + 1 AS TEXT) WHERE name = :name"
    await connection.execute(text(statement), {"name": counter})


def _edited(old: Mapping[str, Any], name: str, value: Any) -> Value:
    """With one entry replaced, or taken out where it is None."""
    return {key: kept for key, kept in {**old, name: value}.items() if kept is not None}


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
