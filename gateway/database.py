"""The database: SQLite by default, PostgreSQL by URL. What is kept there: the ledger, keys, changes at run time.

Nothing of it is ever on a request's path. SQLAlchemy and the driver are imported with the first use, not at start.

A part that needs a table adds one file to `gateway/migrations/versions/`, named `vNNNN_what.py` with the next number;
its `revision` is that number as text, `down_revision` the one before. Write the columns out there (`op.create_table`);
a file that has been released never changes. Queries name their tables by `sqlalchemy.table("calls", column("key"))`, or
are text. Then, in the part that uses it:

    database = Database(runtime.gateway.database_url, runtime.file.parent)
    await database.migrate()                    # once; later calls return at once
    async with database.write() as connection:  # one transaction, committed at its end
        await connection.execute(text("..."), {...})
    async with database.read() as connection:
        rows = (await connection.execute(...)).all()
    await database.close()
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit
from weakref import WeakSet

if TYPE_CHECKING:
    import aiosqlite
    from sqlalchemy import Connection
    from sqlalchemy.engine import URL
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

MIGRATIONS = Path(__file__).with_name("migrations")
CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 0.5
"""For a goodbye to PostgreSQL."""
BUSY_SECONDS = 2.0
"""How long a statement waits while another process writes to a SQLite file."""
MIGRATION_SECONDS = 60.0
POOL = 3
_DRIVERS = (("sqlite", "sqlite"), ("postgresql", "postgresql"), ("postgres", "postgresql"))
_ADVISORY_LOCK = 0x7475726E6F7574
"""Held in PostgreSQL by the process that migrates: "turnout" in ASCII."""


class DatabaseDown(Exception):
    """The database cannot be reached, does not answer in time, or is not fit for use; the text says why, without a
    password."""


class ValueRefused(Exception):
    """The database works, but does not take a value: it breaks a constraint, or is none of its type's."""


class WrongUrl(ValueError):
    """`gateway.database_url` names no database that can be used; the text says why, without a password."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a database is."""

    kind: Literal["sqlite", "postgresql"]
    name: str
    """For people: the URL without user and password."""
    file: Path | None = None
    """SQLite's file."""
    rest: str = field(default="", repr=False)
    """PostgreSQL's URL after its scheme."""

    @property
    def digest(self) -> str:
        """Eight hex digits that tell one database from another."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:8]


def locate(url: str, folder: Path) -> Place:
    """What `gateway.database_url` means; `folder`: what SQLite's relative paths start from. Raises WrongUrl."""
    scheme, _, rest = url.partition("://")
    kind = dict(_DRIVERS).get(scheme.partition("+")[0].lower())
    if kind == "postgresql":
        return Place("postgresql", _without_user(rest), rest=rest)
    path = rest.partition("?")[0].removeprefix("/")
    if kind != "sqlite" or not rest.startswith("/"):
        raise WrongUrl("use sqlite:///FILE, sqlite:////ABSOLUTE/FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME")
    if path in ("", ":memory:"):
        raise WrongUrl("SQLite needs a file: what is kept in memory would not outlive the process")
    file = (folder / path).absolute()
    return Place("sqlite", f"sqlite:///{file}", file=file)


def _without_user(rest: str) -> str:
    try:
        parts = urlsplit(f"postgresql://{rest}")
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise WrongUrl("cannot be read; special characters in the password must be encoded, `/` as %2F") from None
    return f"postgresql://{parts.hostname or 'localhost'}{port}{parts.path}"


class Database:
    """One database, used from one event loop: a small pool of connections, opened when needed."""

    def __init__(self, url: str, base_folder: Path, migration_seconds: float = MIGRATION_SECONDS) -> None:
        """Connects to nothing yet. `migration_seconds`: for all that `migrate` does. Raises WrongUrl."""
        self.place = locate(url, base_folder)
        self._url, self._base_folder = url, base_folder.absolute()
        self._engine: AsyncEngine | None = None
        self._migration_seconds = migration_seconds
        self._starting = asyncio.Lock()
        self._threads: WeakSet[Thread] = WeakSet()
        """aiosqlite's, one per connection; they end some time after their connection has."""
        self._current: object = None
        """Which SQLite file is up to date; with PostgreSQL, whether it is."""

    def write(self, seconds: float = 10.0) -> AbstractAsyncContextManager[AsyncConnection]:
        """One transaction, committed at its end; all of it has `seconds`. Raises DatabaseDown, ValueRefused."""
        return self._transaction(seconds, reads=False)

    def read(self, seconds: float = 10.0) -> AbstractAsyncContextManager[AsyncConnection]:
        """The same for queries, which wait for nobody who writes."""
        return self._transaction(seconds, reads=True)

    @asynccontextmanager
    async def _transaction(self, seconds: float, reads: bool) -> AsyncIterator[AsyncConnection]:
        try:
            async with asyncio.timeout(seconds):
                engine = (await self._started()).execution_options(reads=reads)
                async with engine.connect() as connection:
                    transaction = await connection.begin()
                    try:
                        yield connection
                        await transaction.commit()
                    except asyncio.CancelledError:
                        await connection.invalidate()  # a rollback would wait for the answer that did not come
                        raise
        except Exception as error:
            if _is_refusal(error):
                raise ValueRefused(_reason(error)) from None
            if _is_the_databases(error):
                raise DatabaseDown(_reason(error)) from None
            raise

    async def _started(self) -> AsyncEngine:
        async with self._starting:
            if self._engine is None:
                self._engine = await asyncio.to_thread(_engine, self.place, self._threads)  # imports a lot
            return self._engine

    async def migrate(self) -> None:
        """Bring the tables up to date, once; safe while other processes do the same. A SQLite file that has been
        replaced is another database: what comes is written there. Raises DatabaseDown."""
        if self._current is not None:
            if self._current == _identity(self.place.file):
                return
            self._current = None
            await self.close()  # else all would go on into a file that nobody finds any more
        try:
            async with asyncio.timeout(self._migration_seconds), _alone(self.place.file):
                if await self._version() != newest():
                    await self._upgrade_beside()
        except TimeoutError:
            raise DatabaseDown("its tables cannot be brought up to date in time") from None
        self._current = _identity(self.place.file)

    async def _upgrade_beside(self) -> None:
        """`upgrade` in a process of its own: what alembic brings would stay in this one's memory."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.migrations", cwd=MIGRATIONS.parents[1], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            _, errors = await process.communicate(json.dumps([self._url, str(self._base_folder)]).encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            *_, last = ["its tables cannot be made", *errors.decode(errors="replace").splitlines()]
            raise DatabaseDown(last)

    async def upgrade(self) -> None:
        """Run alembic here and now. Raises DatabaseDown, ValueRefused."""
        async with self.write(MIGRATION_SECONDS) as connection:
            await connection.run_sync(_upgrade)

    async def _version(self) -> str | None:
        """The revision of the tables as they are; None: there are none yet."""
        from sqlalchemy import inspect, text

        async with self.read() as connection:
            if not await connection.run_sync(lambda c: inspect(c).has_table("alembic_version")):
                return None
            version: str | None = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar()
        if version is not None and version > newest():
            raise DatabaseDown(f"its tables are of a later version of Turnout ({version}, this one knows {newest()})")
        return version

    async def close(self) -> None:
        """Close all connections. Nothing may be under way."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.dispose()
        for thread in list(self._threads):  # a loop that is gone when a thread reports to it makes the thread fail
            await asyncio.to_thread(thread.join, BUSY_SECONDS)


def _identity(file: Path | None) -> object:
    """Tells one file from another at the same path."""
    if file is None:
        return True
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def newest() -> str:
    """The last revision that this version has a migration to."""
    return max(file.name[1:5] for file in (MIGRATIONS / "versions").glob("v[0-9]*.py"))


def _engine(place: Place, threads: WeakSet[Thread]) -> AsyncEngine:
    """`threads` gets those that SQLite's connections make."""
    from sqlalchemy import event
    from sqlalchemy.ext.asyncio import create_async_engine

    limits: dict[str, Any] = {"pool_size": POOL, "max_overflow": 0, "pool_recycle": 600, "hide_parameters": True}
    if place.kind == "postgresql":
        options = {
            "timeout": CONNECT_SECONDS,
            "server_settings": {"application_name": "turnout"},
            "connection_class": _parting(),
        }
        return create_async_engine(_postgresql_url(place), connect_args=options, **limits)
    options = {"timeout": BUSY_SECONDS, "async_creator_fn": _opener(threads)}
    engine = create_async_engine(_sqlite_url(place), connect_args=options, **limits)
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _opener(threads: WeakSet[Thread]) -> Callable[..., aiosqlite.Connection]:
    """aiosqlite's `connect`, whose threads are known."""
    import aiosqlite

    def opened(*args: Any, **options: Any) -> aiosqlite.Connection:
        connection = aiosqlite.connect(*args, **options)
        connection._thread.daemon = True  # as SQLAlchemy has it: no process waits for it at its end
        threads.add(connection._thread)
        return connection

    return opened


def _parting() -> type[Any]:
    """asyncpg's connection, which a server that does not answer cannot keep from closing."""
    import asyncpg  # type: ignore[import-untyped]

    class Parting(asyncpg.Connection):  # type: ignore[misc]
        async def close(self, *, timeout: float | None = None) -> None:
            try:  # its own timeout does not hold while the cancellation of a query is under way
                async with asyncio.timeout(CLOSE_SECONDS):
                    await super().close()
            except TimeoutError:
                self.terminate()

    return Parting


def _sqlite_url(place: Place) -> URL:
    from sqlalchemy.engine import URL

    return URL.create("sqlite+aiosqlite", database=str(place.file))


def _postgresql_url(place: Place) -> URL:
    """libpq's `sslmode` is asyncpg's `ssl`."""
    from sqlalchemy.engine import make_url

    url = make_url(f"postgresql+asyncpg://{place.rest}")
    mode = url.query.get("sslmode")
    return url.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode}) if mode else url


def _prepare_sqlite(connection: Any, _: Any) -> None:
    """Transactions are begun by `_begin_sqlite`: the driver's own begin too late, and never around CREATE TABLE."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    """Who will write waits for its turn at the beginning: later SQLite would refuse at once."""
    reads = connection.get_execution_options().get("reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@asynccontextmanager
async def _alone(file: Path | None) -> AsyncIterator[None]:
    """Only one process at a time gets past this for a SQLite file; PostgreSQL has its own lock. Raises DatabaseDown."""
    if file is None:
        yield
        return
    try:
        lock = os.open(file.with_name(f"{file.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise DatabaseDown(f"{file.parent}: {error.strerror}") from None
    try:
        while not _locked(lock):  # noqa: ASYNC110 - another process holds it
            await asyncio.sleep(0.02)
        yield
    finally:
        os.close(lock)


def _locked(descriptor: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _is_refusal(error: Exception) -> bool:
    state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
    return type(error).__name__ in ("DataError", "IntegrityError") or state[:2] in ("22", "23")


def _is_the_databases(error: Exception) -> bool:
    """The network's, SQLAlchemy's or a driver's."""
    known = type(error).__module__.partition(".")[0] in ("sqlalchemy", "asyncpg", "sqlite3", "aiosqlite")
    return known or isinstance(error, OSError | TimeoutError)


def _reason(error: Exception) -> str:
    """Its first line: what follows in SQLAlchemy's texts is the statement."""
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    cause = getattr(error, "orig", None) or error
    return (str(cause).splitlines() or [type(cause).__name__])[0]
