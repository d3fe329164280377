"""Changes at run time: closed models, drained replicas, other weights of experiments.

They live in the database, override `routing.yaml`, and survive restarts. Every process watches them beside its calls;
while the database is down the last known ones stay in force.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from structlog.typing import FilteringBoundLogger

from gateway.clock import Tasks
from gateway.config.runtime import Experiment, Model, Runtime, Target, Upstream
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

Kind = Literal["model", "upstream", "experiment"]
Value = dict[str, Any]


class Override(NamedTuple):
    """One change as it is kept. `value`: of a model, why it is closed; of an upstream, the addresses that are drained;
    of an experiment, its weights."""

    kind: Kind
    name: str
    value: Value
    at: float
    """Seconds since 1970."""
    by: str

    def __str__(self) -> str:
        said = {
            "model": lambda: f"closed{': ' * bool(self.value['reason'])}{self.value['reason']}",
            "upstream": lambda: f"drained: {', '.join(self.value['drained'])}",
            "experiment": lambda: f"arms {', '.join(f'{arm} {w:g}' for arm, w in self.value['arms'].items())}",
        }[self.kind]()
        return f"{self.kind} {self.name}: {said} (since {datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M} UTC)"


@dataclass(frozen=True)
class Changes:
    """All changes in force at one moment."""

    rows: tuple[Override, ...] = ()

    def of(self, kind: Kind) -> Mapping[str, Override]:
        """Name -> change."""
        return {row.name: row for row in self.rows if row.kind == kind}

    @cached_property
    def closed(self) -> Mapping[str, Override]:
        """The closed models."""
        return MappingProxyType(self.of("model"))

    @cached_property
    def _drained(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset(row.value["drained"]) for name, row in self.of("upstream").items()}

    def why_never(self, model: Model) -> str | None:
        """Why a model must not be tried; None: it may."""
        row = self.closed.get(model.name)
        if row is None:
            return None
        reason = row.value["reason"]
        return f"closed by its operator: {reason}" if reason else "closed by its operator"

    def is_drained(self, upstream: str, target: Target) -> bool:
        """One replica gets no new calls."""
        return target.url in self._drained.get(upstream, ())

    def applied(self, runtime: Runtime) -> Runtime:
        """The configuration with drained replicas taken out, and the arms of experiments replaced."""
        if not self.rows:
            return runtime
        upstreams = {name: self._left(upstream) for name, upstream in runtime.upstreams.items()}
        models = {n: replace(m, upstream=upstreams.get(m.upstream.name, m.upstream)) for n, m in runtime.models.items()}
        experiments = dict(runtime.experiments)
        for name, row in self.of("experiment").items():
            if name in experiments and unfit(row.value["arms"], runtime) is None:
                experiments[name] = _split(experiments[name], row.value["arms"])
        return replace(
            runtime,
            upstreams=MappingProxyType(upstreams),
            models=MappingProxyType(models),
            experiments=MappingProxyType(experiments),
        )

    def _left(self, upstream: Upstream) -> Upstream:
        left = tuple(target for target in upstream.targets if not self.is_drained(upstream.name, target))
        if left == upstream.targets:
            return upstream
        return replace(upstream, targets=left, off=upstream.off or (None if left else "all its replicas are drained"))

    def idle(self, runtime: Runtime) -> Iterator[tuple[Override, str]]:
        """Changes that a file leaves without effect, and why."""
        named = {"model": runtime.models, "upstream": runtime.upstreams, "experiment": runtime.experiments}
        for row in self.rows:
            if row.name not in named[row.kind]:
                yield row, f"the file has no {row.kind} '{row.name}'"
            elif row.kind == "experiment" and (why := unfit(row.value["arms"], runtime)) is not None:
                yield row, why
            elif row.kind == "upstream":
                known = {target.url for target in runtime.upstreams[row.name].targets}
                if not known & set(row.value["drained"]):
                    yield row, "the file has none of these addresses"

    def documents(self, runtime: Runtime) -> list[dict[str, Any]]:
        """For programs: each change, and why it has no effect where it has none."""
        idle = {(row.kind, row.name): why for row, why in self.idle(runtime)}
        return [{**row._asdict(), "without_effect": idle.get((row.kind, row.name))} for row in self.rows]


def unfit(arms: Mapping[str, float], runtime: Runtime) -> str | None:
    """Why weights cannot be used with a configuration; None: they can."""
    unknown = [arm for arm in arms if arm not in runtime.models]
    if unknown:
        return f"no model is called '{unknown[0][:100]}'"
    return None if any(weight > 0 for weight in arms.values()) else "all weights are 0, so no arm could ever be chosen"


def _split(experiment: Experiment, arms: Mapping[str, float]) -> Experiment:
    """Arms keep the file's order, so that only the units between old and new bounds move."""
    order = [*(arm for arm in experiment.arms if arm in arms), *(arm for arm in arms if arm not in experiment.arms)]
    return replace(experiment, arms=MappingProxyType({arm: float(arms[arm]) for arm in order}))


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

    async def drain(self, upstream: str, target: Target, drained: bool, by: str) -> None:
        """Give a replica no new calls, or some again. Raises DatabaseDown."""

        def edited(old: Value | None) -> Value | None:
            others = [url for url in (old or {"drained": []})["drained"] if url != target.url]
            drains = [*others, target.url] if drained else others
            return {"drained": drains} if drains else None

        action = "replicas.drain" if drained else "replicas.return"
        await self._change("upstream", upstream, edited, by, action, {"address": f"{target.host}:{target.port}"})

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
                row = who | {"value": _json(value), "at_ms": _now_ms(), "actor": by}
                insert = "INSERT INTO overrides (kind, name, value, at_ms, actor) VALUES"
                await connection.execute(text(f"{insert} (:kind, :name, :value, :at_ms, :actor)"), row)
            await note(connection, by, action, name, detail or {})
        self._log.info("changed at run time", action=action, target=name, by=by, **(detail or {}))
        with suppress(DatabaseDown):  # it is done; this process sees it a little later
            await self.refresh()


class NoOverrides:
    """Nothing is changed at run time, and nothing can be: there is no database."""

    changes = Changes()
    up = False

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def close_model(self, name: str, closed: bool, reason: str, by: str) -> None:
        """Raises DatabaseDown."""
        raise DatabaseDown("there is none")

    async def drain(self, upstream: str, target: Target, drained: bool, by: str) -> None:
        """Raises DatabaseDown."""
        raise DatabaseDown("there is none")

    async def set_arms(self, experiment: str, arms: Mapping[str, float] | None, by: str) -> None:
        """Raises DatabaseDown."""
        raise DatabaseDown("there is none")

    async def ask_reload(self, by: str, detail: Value) -> None:
        """Raises DatabaseDown."""
        raise DatabaseDown("there is none")

    async def audited(self, most: int) -> list[Value]:
        """Raises DatabaseDown."""
        raise DatabaseDown("there is none")


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
    row = {"at_ms": _now_ms(), "actor": by, "action": action, "target": target, "detail": _json(detail)}
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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
