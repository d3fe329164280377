"""The ledger as calls see it: nothing waits, nothing is lost, and it comes back by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import text

from gateway import clock
from gateway.accounting.content import Contents
from gateway.accounting.journal import Journal
from gateway.accounting.ledger import Ledger, NoLedger
from gateway.body import Body
from gateway.call import ENDPOINTS
from gateway.database import Database
from gateway.edge.body import parse
from gateway.telemetry.logs import Writer, logger
from tests.fakes.postgres import Postgres
from tests.unit.accounting.rows import a_finished_call, ids

pytestmark = pytest.mark.usefixtures("tables_here")

SOON = 60.0
NONE = Contents(0.0, 30)


class Log:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def msg(self, line: str) -> None:
        self.lines.append(line)

    debug = info = warning = error = critical = msg

    def levels(self) -> list[str]:
        return [json.loads(line)["level"] for line in self.lines]


@pytest.fixture
def log() -> Log:
    return Log()


Make = Callable[..., Ledger]


@pytest.fixture
async def make(tmp_path: Path, log: Log) -> AsyncIterator[Make]:
    made: list[Ledger] = []

    def ledger(database: Database, contents: Contents = NONE, bound: int = 1 << 20) -> Ledger:
        journal = Journal(tmp_path / "journal", database.place.digest, bound)
        made.append(Ledger(database, journal, logger(cast(Writer, log), as_text=False), contents, every=0.01))
        made[-1].start()
        return made[-1]

    yield ledger
    for one in made:
        await one.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 - what happens beside the calls tells nobody
            await asyncio.sleep(0.005)


def write(ledger: Ledger, count: int, **changes: Any) -> None:
    for number in range(count):
        ledger.write(a_finished_call(number, **changes), clock.now())


def again(database: Database, folder: Path) -> Database:
    """Another process's view of the same database."""
    if database.place.kind == "sqlite":
        return Database("sqlite:///turnout.db", folder)
    return Database(f"postgresql://{database.place.rest}", folder)


@pytest.mark.seconds
async def test_every_call_becomes_one_row(database: Database, make: Make, log: Log, tmp_path: Path) -> None:
    ledger = make(again(database, tmp_path))
    write(ledger, 250)
    await until(lambda: ledger.depth() == 0)
    write(ledger, 250)
    await ledger.close()
    assert len(await ids(database)) == 500
    write(ledger, 1)
    assert (ledger.depth(), ledger.dropped, log.lines) == (0, 1, [])  # too late, and harmless
    assert list((tmp_path / "journal").iterdir()) == []


async def test_what_was_spent_is_known_after_the_start(database: Database, make: Make, tmp_path: Path) -> None:
    first = make(again(database, tmp_path))
    write(first, 3)
    await first.close()
    second = make(again(database, tmp_path))
    await second.looked()
    assert second.spend.known


async def test_a_start_without_the_database_goes_on(tmp_path: Path, make: Make) -> None:
    (tmp_path / "turnout.db").write_text("this is no database, and will not become one" * 100)
    ledger = make(Database("sqlite:///turnout.db", tmp_path))
    await ledger.looked()
    assert not ledger.spend.known


async def test_two_processes_write_and_one_dies(database: Database, make: Make, tmp_path: Path) -> None:
    one, two = make(again(database, tmp_path)), make(again(database, tmp_path))
    dead = Journal(tmp_path / "journal", database.place.digest)
    never_started = Ledger(again(database, tmp_path), dead, logger(cast(Writer, Log()), as_text=False), NONE)
    write(never_started, 30)
    dead.close()  # its locks are gone, as those of a killed process
    write(one, 100)
    write(two, 100)
    await until(lambda: one.depth() + two.depth() == 0)
    heir = make(again(database, tmp_path))
    await heir.close()
    assert len(await ids(database)) == 230


@pytest.mark.seconds
async def test_a_locked_database_costs_nothing(tmp_path: Path, make: Make, log: Log) -> None:
    blocker = Database("sqlite:///turnout.db", tmp_path)
    await blocker.migrate()
    ledger = make(Database("sqlite:///turnout.db", tmp_path))
    async with blocker.write(SOON):
        write(ledger, 10)
        await until(lambda: "error" in log.levels())
        write(ledger, 10)
        assert ledger.depth() == 20
    await until(lambda: ledger.depth() == 0)
    assert len(await ids(blocker)) == 20
    await until(lambda: len(log.lines) == 2)
    assert log.levels() == ["error", "info"]  # one line for each change
    await blocker.close()


@pytest.mark.seconds
async def test_what_a_clean_stop_cannot_ship_is_there_at_the_next_start(tmp_path: Path, make: Make, log: Log) -> None:
    folder = tmp_path / "later"
    ledger = make(Database("sqlite:///later/turnout.db", tmp_path))
    write(ledger, 10)
    await until(lambda: "error" in log.levels())
    await ledger.close()
    folder.mkdir()
    heir = make(Database("sqlite:///later/turnout.db", tmp_path))
    await until(lambda: any("another process left behind" in line for line in log.lines))
    await until(lambda: heir.depth() == 0)
    assert len(await ids(heir.database)) == 10


async def test_beyond_the_bound_rows_are_dropped_and_counted(tmp_path: Path, make: Make, log: Log) -> None:
    ledger = make(Database("sqlite:///later/turnout.db", tmp_path), bound=3000)
    write(ledger, 100)
    kept = ledger.depth()
    assert 0 < kept < 10
    assert ledger.dropped == 100 - kept
    await until(lambda: any("are lost" in line for line in log.lines))
    (tmp_path / "later").mkdir()
    await until(lambda: ledger.depth() == 0)
    write(ledger, 1)
    await until(lambda: any(json.loads(line).get("lost") == 100 - kept for line in log.lines))
    await until(lambda: ledger.depth() == 0)
    assert len(await ids(ledger.database)) == kept + 1


async def test_the_text_of_chosen_calls_is_kept_for_its_time(tmp_path: Path, make: Make) -> None:
    database = Database("sqlite:///turnout.db", tmp_path)
    await database.migrate()
    async with database.write() as connection:
        await connection.execute(text("INSERT INTO contents (id, at_ms, prompt) VALUES ('old', 1, 'x')"))
    ledger = make(Database("sqlite:///turnout.db", tmp_path), Contents(1.0, 30))
    write(ledger, 3, body=a_finished_call().body)
    write(ledger, 1, body=_saying("my mail is me@example.com"))
    async with asyncio.timeout(SOON):
        while "old" in (kept := await ids(database, "contents")) or not kept:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await ledger.close()
    async with database.read() as connection:
        rows = (await connection.execute(text("SELECT id, prompt FROM contents"))).all()
    assert [prompt for _, prompt in rows] == ["user: my mail is [email]"]
    assert rows[0][0] in await ids(database)
    await database.close()


def _saying(words: str) -> Body:
    body = {"model": "auto", "messages": [{"role": "user", "content": words}]}
    return parse(json.dumps(body).encode(), ENDPOINTS["chat"])


@pytest.mark.slow
async def test_a_frozen_and_a_dead_postgresql_cost_nothing(
    postgres: Postgres, tmp_path: Path, make: Make, log: Log
) -> None:
    url = postgres.new_database()
    ledger = make(Database(url, tmp_path))
    write(ledger, 10)
    await until(lambda: ledger.depth() == 0)
    for trouble, cure in ((postgres.freeze, postgres.thaw), (postgres.stop, postgres.start)):
        log.lines.clear()
        trouble()
        write(ledger, 10)
        await until(lambda: "error" in log.levels())
        write(ledger, 10)
        assert ledger.depth() == 20
        cure()
        await until(lambda: ledger.depth() == 0)
        await until(lambda: log.levels() == ["error", "info"])
    assert len(await ids(ledger.database)) == 50
    assert "pg-secret" not in "".join(log.lines)


@pytest.mark.slow
async def test_a_database_that_is_frozen_at_the_stop(postgres: Postgres, tmp_path: Path, make: Make) -> None:
    url = postgres.new_database()
    ledger = make(Database(url, tmp_path))
    write(ledger, 10)
    await until(lambda: ledger.depth() == 0)
    postgres.freeze()
    try:
        write(ledger, 10)
        await ledger.close()
    finally:
        postgres.thaw()
    heir = make(Database(url, tmp_path))
    await heir.close()
    database = Database(url, tmp_path)
    assert len(await ids(database)) == 20
    await database.close()


class NeverDone(Contents):
    """Deletes old texts for ever, as in a database that is frozen just then."""

    async def forget(self, database: Database) -> None:
        await asyncio.Event().wait()


async def test_rows_do_not_wait_for_old_texts(database: Database, make: Make, tmp_path: Path) -> None:
    ledger = make(again(database, tmp_path), NeverDone(1.0, 30))
    for _ in range(2):
        write(ledger, 10)
        await until(lambda: ledger.depth() == 0)
        await ledger.looked()


async def test_no_ledger_keeps_nothing() -> None:
    ledger = NoLedger()
    ledger.start()
    await ledger.looked()
    ledger.write(a_finished_call(), 102.0)
    assert (ledger.depth(), ledger.dropped) == (0, 0)
    await ledger.close()
