"""Created keys in the database. Every change is one transaction: the key, the version that all processes watch, and a
row of the audit."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.auth.record import KeyRecord, KeyRefused, Secret, moment
from gateway.auth.secret import digest, new_secret, prefix_of
from gateway.config.runtime import Budget, Limit
from gateway.database import Database, DatabaseDown

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

MOST_KEYS = 200_000
"""Keys that are kept in mind: all that can be used, and those that could in the last REMEMBERED_MS."""
REMEMBERED_MS = 30 * 86_400_000
"""So long after its end a key is still told as expired, revoked or replaced; then it is unknown."""
PAGE = 500
_COLUMNS = ", ".join(
    [
        "k.name, k.team",
        *(f"CAST(k.{name} AS TEXT)" for name in ("models", "limits", "budget", "metadata")),
        "k.created_ms, k.expires_ms, k.revoked_ms, s.digest, s.prefix, s.created_ms, s.until_ms",
    ]
)
_REMEMBERED = "(expires_ms IS NULL OR expires_ms > :horizon) AND (revoked_ms IS NULL OR revoked_ms > :horizon)"


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Mark:
    """What tells whether anything has changed."""

    pepper: bytes
    version: int

    def leads_to(self, other: Mark) -> bool:
        """Both are of one database, and the other one is not earlier."""
        return self.pepper == other.pepper and self.version <= other.version


class KeyStore:
    """The keys of one database. Every method may raise DatabaseDown."""

    def __init__(self, database: Database, now: Callable[[], int] = now_ms, most: int = MOST_KEYS) -> None:
        """`now`: milliseconds since 1970. `most`: keys that are remembered."""
        self.database = database
        self._now = now
        self._most = most

    # -- reading

    async def mark(self) -> Mark:
        """The state of the keys, by the smallest question there is."""
        async with self.database.read(2.0) as connection:
            return await _mark(connection)

    async def pages(self, after_version: int = -1) -> AsyncIterator[list[KeyRecord]]:
        """The remembered keys that have changed after a version, in portions."""
        after = ""
        while page := await self._page(after_version, after, PAGE):
            yield page
            after = page[-1].name

    async def all(self) -> list[KeyRecord]:
        """Every key that there has ever been, by name."""
        async with self.database.read(60.0) as connection:
            return await _records(connection, "SELECT * FROM keys")

    async def get(self, name: str) -> KeyRecord:
        """One key. Raises KeyRefused."""
        async with self.database.read() as connection:
            return await _record(connection, name)

    async def usable(self) -> bool:
        """There is a key that a caller could come with."""
        from sqlalchemy import text

        statement = "SELECT count(*) FROM keys WHERE revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > :now)"
        async with self.database.read() as connection:
            return bool((await connection.execute(text(statement), {"now": self._now()})).scalar())

    async def _page(self, version: int, after: str, size: int) -> list[KeyRecord]:
        where = f"changed > :version AND name > :after AND {_REMEMBERED}"
        source = f"SELECT * FROM keys WHERE {where} ORDER BY name LIMIT :size"
        async with self.database.read() as connection:
            values = {"version": version, "after": after, "size": size, "horizon": self._horizon()}
            return await _records(connection, source, **values)

    def _horizon(self) -> int:
        return self._now() - REMEMBERED_MS

    # -- changing

    async def create(self, key: KeyRecord, actor: str) -> tuple[KeyRecord, str]:
        """Keep a new key; the key and its secret. Raises KeyRefused."""
        values = {
            "name": key.name,
            "team": key.team,
            "models": _json(key.models),
            "limits": _json(key.limits),
            "budget": _json(key.budget),
            "metadata": _json(key.metadata),
            "created_ms": key.created_ms,
            "expires_ms": key.expires_ms,
        }
        async with self._change() as change:
            await self._check_room(change, key.name)
            await change.insert("keys", values | {"changed": change.mark.version})
            secret = new_secret()
            kept = await change.keep(key.name, secret, key.created_ms)
            detail = {name: value for name, value in key.document(0).items() if value and name not in _NOT_AUDITED}
            await change.note(key.created_ms, actor, "keys.create", key.name, detail | {"prefix": kept.prefix})
        return replace(key, secrets=(kept,)), secret

    async def revoke(self, name: str, actor: str) -> KeyRecord:
        """Let nobody in with a key any more; what is revoked stays so. Raises KeyRefused if there is no such key."""
        async with self._change() as change:
            key = await _record(change.connection, name)
            if key.revoked_ms is None:
                now = self._now()
                await change.update(name, "revoked_ms = :now,", now=now)
                await change.note(now, actor, "keys.revoke", name, {})
                key = replace(key, revoked_ms=now)
        return key

    async def rotate(self, name: str, overlap_ms: int, actor: str) -> tuple[KeyRecord, str]:
        """Give a key a new secret; the old one lasts `overlap_ms` longer, at most. Raises KeyRefused."""
        async with self._change() as change:
            key = await _record(change.connection, name)
            now = self._now()
            if (state := key.state(now)) != "live":
                raise KeyRefused("dead", f"the key '{name}' is {state}: create another one instead")
            until = now + overlap_ms
            ends = "UPDATE key_secrets SET until_ms = :until WHERE key = :name"
            await change.execute(f"{ends} AND (until_ms IS NULL OR until_ms > :until)", name=name, until=until)
            forgotten = "DELETE FROM key_secrets WHERE key = :name AND until_ms < :horizon"
            await change.execute(forgotten, name=name, horizon=self._horizon())
            secret = new_secret()
            kept = await change.keep(name, secret, now)
            await change.update(name)
            detail = {"prefix": kept.prefix, "old_until": moment(until)}
            await change.note(now, actor, "keys.rotate", name, detail)
            key = await _record(change.connection, name)
        return key, secret

    async def _check_room(self, change: _Change, name: str) -> None:
        if await change.execute("SELECT 1 FROM keys WHERE name = :name", name=name):
            raise KeyRefused(
                "taken", f"name: there is a key '{name}' already; names of revoked keys stay taken", "name"
            )
        statement = f"SELECT count(*) FROM keys WHERE {_REMEMBERED}"
        ((count,),) = await change.execute(statement, horizon=self._horizon())
        if count >= self._most:
            raise KeyRefused("full", f"there are {self._most:,} keys, which is the most that are kept in memory")

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[_Change]:
        """A transaction with the next version. It holds the version's row: changes come one after another."""
        from sqlalchemy import text

        next_version = "UPDATE settings SET value = CAST(CAST(value AS BIGINT) + 1 AS TEXT) WHERE name = 'keys_version'"
        async with self.database.write() as connection:
            await connection.execute(text(next_version))
            yield _Change(connection, await _mark(connection))


_NOT_AUDITED = frozenset({"name", "state", "created", "secrets"})


@dataclass(frozen=True, slots=True)
class _Change:
    """One transaction under way."""

    connection: AsyncConnection
    mark: Mark

    async def execute(self, statement: str, **values: Any) -> list[Any]:
        from sqlalchemy import text

        result = await self.connection.execute(text(statement), values)
        return list(result.all()) if result.returns_rows else []

    async def insert(self, table: str, values: dict[str, Any]) -> None:
        names = ", ".join(values)
        await self.execute(f"INSERT INTO {table} ({names}) VALUES (:{', :'.join(values)})", **values)

    async def update(self, name: str, what: str = "", **values: Any) -> None:
        statement = f"UPDATE keys SET {what} changed = :version WHERE name = :name"
        await self.execute(statement, name=name, version=self.mark.version, **values)

    async def keep(self, name: str, secret: str, at_ms: int) -> Secret:
        kept = Secret(digest(self.mark.pepper, secret.encode()), prefix_of(secret), at_ms)
        row = {"digest": kept.digest, "key": name, "prefix": kept.prefix, "created_ms": at_ms}
        await self.insert("key_secrets", row)
        return kept

    async def note(self, at_ms: int, actor: str, action: str, target: str, detail: dict[str, Any]) -> None:
        row = {"at_ms": at_ms, "actor": actor, "action": action, "target": target, "detail": _json(detail)}
        await self.insert("audit", row)


async def _mark(connection: AsyncConnection) -> Mark:
    from sqlalchemy import text

    rows = await connection.execute(text("SELECT name, value FROM settings WHERE name IN ('pepper', 'keys_version')"))
    settings = dict(map(tuple, rows))
    if len(settings) < 2:
        raise DatabaseDown("its table `settings` lacks the pepper or the version of the keys")
    return Mark(bytes.fromhex(settings["pepper"]), int(settings["keys_version"]))


async def _record(connection: AsyncConnection, name: str) -> KeyRecord:
    found = await _records(connection, "SELECT * FROM keys WHERE name = :name", name=name)
    if not found:
        raise KeyRefused("missing", f"there is no created key '{name[:128]}'", "name")
    return found[0]


async def _records(connection: AsyncConnection, source: str, **values: Any) -> list[KeyRecord]:
    from sqlalchemy import text

    statement = f"SELECT {_COLUMNS} FROM ({source}) k JOIN key_secrets s ON s.key = k.name ORDER BY k.name"
    rows = (await connection.execute(text(statement), values)).all()
    return [_built(list(group)) for _, group in groupby(rows, key=lambda row: row[0])]


def _built(rows: list[Any]) -> KeyRecord:
    """One key of the rows of its secrets."""
    name, team, models, limits, budget, metadata, created, expires, revoked = rows[0][:9]
    secrets = (Secret(bytes(row[9]), *row[10:13]) for row in rows)
    return KeyRecord(
        name,
        team,
        _of_json(models, tuple[str, ...] | None),
        _of_json(limits, Limit | None),
        _of_json(budget, Budget | None),
        _of_json(metadata, dict[str, str]),
        created,
        expires,
        revoked,
        tuple(sorted(secrets, key=lambda secret: secret.created_ms, reverse=True)),
    )


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _of_json(text: str | None, kind: Any) -> Any:
    return None if text is None else msgspec.json.decode(text, type=kind)
