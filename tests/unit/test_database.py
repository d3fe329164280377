"""One class for both databases: transactions, migrations by several processes, and what a dead one looks like."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text

from gateway.database import MIGRATIONS, Database, DatabaseDown, ValueRefused, WrongUrl, locate, newest
from tests.fakes.postgres import PASSWORD, Postgres

ROOT = Path(__file__).resolve().parents[2]
MIGRATE = """
import asyncio, sys
from pathlib import Path
from gateway.database import Database
database = Database(sys.argv[1], Path(sys.argv[2]))
async def main():
    await database.migrate()
    await database.close()
asyncio.run(main())
"""
ADD = text("INSERT INTO contents (id, at_ms, prompt) VALUES (:id, 1, 'x')")
COUNT = text("SELECT count(*) FROM contents")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return "sqlite:///turnout.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


async def add(database: Database, *ids: str) -> None:
    async with database.write() as connection:
        for row in ids:
            await connection.execute(ADD, {"id": row})


async def count(database: Database) -> int:
    async with database.read() as connection:
        return int((await connection.execute(COUNT)).scalar_one())


async def test_a_transaction_is_kept_whole_or_not_at_all(url: str, tmp_path: Path) -> None:
    database = Database(url, tmp_path)
    await database.migrate()
    await database.migrate()
    await add(database, "a")
    with pytest.raises(ValueRefused):
        await add(database, "b", "a")
    assert await count(database) == 1
    await database.close()
    assert await count(database) == 1  # opened again when needed
    await database.close()


@pytest.mark.seconds
async def test_several_processes_migrate_at_once(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", MIGRATE, url, str(tmp_path)]
    started = [await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=subprocess.PIPE) for _ in range(3)]
    for process in started:
        _, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")
    database = Database(url, tmp_path)
    await database.migrate()
    assert await count(database) == 0
    await database.close()


async def test_a_reader_and_a_writer_do_not_wait_for_each_other(url: str, tmp_path: Path) -> None:
    database = Database(url, tmp_path)
    await database.migrate()
    async with database.write() as connection:
        await connection.execute(ADD, {"id": "a"})
        assert await count(database) == 0
    await database.close()


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "deleted"])
@pytest.mark.seconds
async def test_what_comes_is_written_to_the_file_that_is_there(replaced: bool, tmp_path: Path) -> None:
    database, file = Database("sqlite:///turnout.db", tmp_path), tmp_path / "turnout.db"
    await database.migrate()
    await add(database, "a", "b")
    if replaced:
        other = Database("sqlite:///other.db", tmp_path)
        await other.migrate()
        await add(other, "c")
        await other.close()
        (tmp_path / "other.db").replace(file)
    else:
        file.unlink()
    for rest in ("turnout.db-wal", "turnout.db-shm"):
        (tmp_path / rest).unlink(missing_ok=True)
    await database.migrate()
    await add(database, "d")
    assert await count(database) == 1 + replaced
    reader = Database("sqlite:///turnout.db", tmp_path)
    assert await count(reader) == 1 + replaced
    for one in (database, reader):
        await one.close()


async def test_a_migration_that_another_process_holds_up(tmp_path: Path) -> None:
    database = Database("sqlite:///turnout.db", tmp_path, migration_seconds=0.1)
    with (tmp_path / "turnout.db.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DatabaseDown, match="in time"):
            await database.migrate()
    await database.close()


@pytest.mark.seconds
async def test_a_migration_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    database = Database("sqlite:///t.db", tmp_path)
    async with database.write() as connection:
        await connection.execute(text("CREATE TABLE contents (id TEXT)"))
    with pytest.raises(DatabaseDown, match="contents already exists"):
        await database.migrate()
    async with database.write() as connection:
        await connection.execute(text("DROP TABLE contents"))
    await database.migrate()
    await database.close()


async def test_tables_of_a_later_version_are_left_alone(tmp_path: Path) -> None:
    database = Database("sqlite:///t.db", tmp_path)
    await database.migrate()
    async with database.write() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await database.close()
    later = Database("sqlite:///t.db", tmp_path)
    with pytest.raises(DatabaseDown, match="later version"):
        await later.migrate()
    await later.close()


@pytest.mark.seconds
async def test_a_locked_sqlite_file_is_down_for_writers(tmp_path: Path) -> None:
    database = Database("sqlite:///t.db", tmp_path)
    await database.migrate()
    other = Database("sqlite:///t.db", tmp_path)
    async with other.write():
        with pytest.raises(DatabaseDown, match=r"locked|in time"):
            async with database.write(0.2):
                pass
    await add(database, "a")
    await database.close()
    await other.close()


@pytest.mark.parametrize("name", ["folder", "missing/turnout.db", "text.db"])
async def test_a_file_that_is_no_database(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("no database at all" * 100)
    database = Database(f"sqlite:///{name}", tmp_path)
    with pytest.raises(DatabaseDown):
        await database.migrate()
    await database.close()


def test_no_thread_outlives_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's thread that reports to a loop which is gone fails, and a failed connection's is the last to end."""
    connect, ended = sqlite3.connect, threading.Event()

    def slow(*arguments: Any, **options: Any) -> Any:
        try:
            return connect(*arguments, **options)
        finally:
            ended.wait(0.2)

    async def fails() -> None:
        database = Database("sqlite:///missing/t.db", tmp_path)
        with pytest.raises(DatabaseDown):
            async with database.read(seconds=0.1):
                pass
        assert drivers(), "the connection is not yet refused"
        await database.close()
        assert not drivers()

    def drivers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if "_connection_worker_thread" in thread.name]

    monkeypatch.setattr(sqlite3, "connect", slow)
    asyncio.run(fails())


@pytest.mark.slow
async def test_postgresql_that_freezes_dies_and_returns(postgres: Postgres) -> None:
    database = Database(postgres.new_database(), Path())
    await database.migrate()
    postgres.freeze()
    with pytest.raises(DatabaseDown, match="in time"):
        async with database.read(0.2) as connection:
            await connection.execute(COUNT)
    postgres.thaw()
    assert await count(database) == 0
    postgres.stop()
    with pytest.raises(DatabaseDown):
        await count(database)
    postgres.start()
    assert await count(database) == 0
    await database.close()


@pytest.mark.slow
async def test_no_text_holds_the_password(postgres: Postgres) -> None:
    url = postgres.url.replace(PASSWORD, "wrong-secret-word")
    database = Database(f"{url}?sslmode=prefer", Path())
    with pytest.raises(DatabaseDown, match="authentication failed") as caught:
        await database.migrate()
    assert "wrong-secret" not in f"{caught.value!r} {caught.value.__cause__!r} {database.place!r}"
    await database.close()


def test_places(tmp_path: Path) -> None:
    assert locate("sqlite:///a/b.db", tmp_path).file == tmp_path / "a/b.db"
    assert locate("sqlite:////a/b.db", tmp_path).file == Path("/a/b.db")
    place = locate("postgres://me:secret@db.example:5433/turnout?sslmode=require", tmp_path)
    assert (place.kind, place.name) == ("postgresql", "postgresql://db.example:5433/turnout")
    assert "secret" not in repr(place)
    assert place.digest != locate("postgres://db.example/turnout", tmp_path).digest


@pytest.mark.parametrize(
    "url", ["mysql://h/n", "turnout.db", "sqlite://", "sqlite:///", "sqlite:///:memory:", "postgresql://u:secret[@h/n"]
)
def test_wrong_urls(url: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUrl) as caught:
        locate(url, tmp_path)
    assert "secret" not in str(caught.value)


def test_the_newest_revision_is_alembics_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == newest()


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import sys, gateway.app, gateway.database; assert not {'sqlalchemy', 'alembic'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
