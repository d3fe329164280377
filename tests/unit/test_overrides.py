"""Changes at run time: what they do to a configuration, how they are made, kept and seen by other processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from gateway.changes import Changes
from gateway.config.base_url import resolve
from gateway.config.runtime import Experiment, Runtime
from gateway.database import Database, DatabaseDown
from gateway.overrides import NoOverrides, Overrides, stored
from gateway.telemetry.logs import logger
from tests.fakes.postgres import Postgres
from tests.unit.building import a_model, a_runtime, an_upstream

pytestmark = pytest.mark.usefixtures("tables_here")

TARGETS = tuple(resolve(f"http://127.0.0.1:{port}/v1") for port in (9, 10))
LOCAL = an_upstream("local", targets=TARGETS)
FAST, QUALITY = a_model("fast"), a_model("quality", LOCAL)
SPLIT = Experiment("split", "auto", {"fast": 50.0, "quality": 50.0}, salt="split")
RUNTIME = a_runtime(FAST, QUALITY, experiments={"split": SPLIT})


class Lines:
    """Where the log goes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.log = logger(self, as_text=False)  # type: ignore[arg-type]

    def msg(self, line: str) -> None:
        self.lines.append(line)

    debug = info = warning = error = critical = msg


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return "sqlite:///t.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
async def database(tmp_path: Path, url: str) -> AsyncIterator[Database]:
    database = Database(url, tmp_path)
    await database.migrate()
    yield database
    await database.close()


@pytest.fixture
def overrides(database: Database) -> Overrides:
    return Overrides(database, Lines().log)


# -- how they are made and kept


async def test_each_change_is_in_force_when_it_returns(overrides: Overrides) -> None:
    told: list[Changes] = []
    overrides._changed = lambda: told.append(overrides.changes)
    await overrides.refresh()
    await overrides.close_model("fast", True, "tests", "me")
    closed = overrides.changes.closed["fast"]
    assert (closed.value, closed.by) == ({"reason": "tests"}, "me")
    await overrides.drain("local", TARGETS[0], True, "me")
    await overrides.drain("local", TARGETS[1], True, "me")
    await overrides.drain("local", TARGETS[1], True, "me")
    assert overrides.changes.of("upstream")["local"].value == {"drained": [target.url for target in TARGETS]}
    await overrides.drain("local", TARGETS[0], False, "me")
    assert overrides.changes.of("upstream")["local"].value == {"drained": [TARGETS[1].url]}
    await overrides.drain("local", TARGETS[1], False, "me")
    await overrides.set_arms("split", {"fast": 1, "quality": 3}, "me")
    await overrides.close_model("fast", False, "", "me")
    await overrides.close_model("fast", False, "", "me")
    assert [(row.kind, row.name, row.value) for row in overrides.changes.rows] == [
        ("experiment", "split", {"arms": {"fast": 1, "quality": 3}})
    ]
    await overrides.set_arms("split", None, "me")
    assert overrides.changes == Changes()
    assert told[-1] == Changes()
    audited = await overrides.audited(100)
    assert [row["action"] for row in audited] == [
        "experiments.reset",
        *["models.open"] * 2,
        "experiments.split",
        *["replicas.return"] * 2,
        *["replicas.drain"] * 3,
        "models.close",
    ]
    first = audited[-1]
    assert (first["actor"], first["target"], first["detail"]) == ("me", "fast", {"reason": "tests"})
    assert audited[4]["detail"] == {"address": "127.0.0.1:10"}
    assert len(await overrides.audited(2)) == 2


async def test_traffic_and_replicas_that_are_moved(overrides: Overrides) -> None:
    await overrides.move_traffic("quality", "tool", "it stalls", "alarm")
    await overrides.move_traffic("quality", "json", "it collapsed", "alarm")
    assert overrides.changes.moved_traffic == {"quality": {"tool": "it stalls", "json": "it collapsed"}}
    await overrides.move_traffic("quality", "json", None, "me")
    await overrides.drain("local", TARGETS[1], True, "me")
    await overrides.move_replica("local", TARGETS[0], 4711, "supervisor")
    assert overrides.changes.of("upstream")["local"].value == {
        "drained": [TARGETS[1].url],
        "moved": {TARGETS[0].url: 4711},
    }
    await overrides.drain("local", TARGETS[1], False, "me")
    assert [(row.kind, row.value) for row in overrides.changes.rows] == [
        ("traffic", {"moved": {"tool": "it stalls"}}),
        ("upstream", {"moved": {TARGETS[0].url: 4711}}),
    ]
    await overrides.move_traffic("quality", "tool", None, "me")
    await overrides.move_replica("local", TARGETS[0], None, "supervisor")
    assert overrides.changes == Changes()
    actions = [row["action"] for row in await overrides.audited(100)]
    assert {"traffic.move", "traffic.return", "replicas.move"} <= set(actions)


async def test_a_rolling_restart_is_asked_for_followed_and_over(overrides: Overrides) -> None:
    await overrides.restarting("local", "asked for", "me")
    asked = overrides.changes.of("engine")["local"].value["asked"]
    await overrides.restarting("local", "replica 0 starts", "supervisor")
    assert overrides.changes.of("engine")["local"].value == {"asked": asked, "state": "replica 0 starts"}
    await overrides.restarting("local", None, "supervisor")
    assert overrides.changes == Changes()


async def test_changes_at_the_same_time_are_all_kept(overrides: Overrides) -> None:
    targets = [resolve(f"http://127.0.0.1:{port}/v1") for port in range(20, 28)]
    await asyncio.gather(*(overrides.drain("local", target, True, "me") for target in targets))
    assert set(overrides.changes.of("upstream")["local"].value["drained"]) == {target.url for target in targets}


async def test_a_new_process_finds_them_and_others_follow(tmp_path: Path, url: str, overrides: Overrides) -> None:
    seen, reloads = asyncio.Event(), asyncio.Event()
    other = Overrides(Database(url, tmp_path), Lines().log, seen.set, reloads.set, every=0.01)
    await other.start()
    assert (other.up, other.changes) == (True, Changes())
    try:
        async with asyncio.timeout(15):
            await overrides.close_model("fast", True, "", "me")
            await seen.wait()
            assert other.changes == overrides.changes
            own = asyncio.Event()
            overrides._reload = own.set
            await overrides.ask_reload("me", {"result": "ok"})
            await reloads.wait()
            await overrides.refresh()
            assert not own.is_set()
    finally:
        await other.close()
        await other.database.close()
    assert (await stored(runtime_in(tmp_path, url))) == overrides.changes


def runtime_in(folder: Path, url: str = "sqlite:///t.db") -> Runtime:
    settings = replace(RUNTIME.gateway, database_url=url)
    return replace(RUNTIME, file=folder / "routing.yaml", gateway=settings)


async def test_while_the_database_is_down_the_known_ones_stay(tmp_path: Path) -> None:
    lines = Lines()
    folder = tmp_path / "later"
    overrides = Overrides(Database("sqlite:///later/t.db", tmp_path), lines.log, every=0.01)
    await overrides.start()
    assert not overrides.up
    with pytest.raises(DatabaseDown):
        await overrides.close_model("fast", True, "", "me")
    await asyncio.to_thread(folder.mkdir)
    try:
        await until(lambda: overrides.up)
        await overrides.close_model("fast", True, "", "me")
        async with overrides.database.write() as connection:
            await connection.execute(text("ALTER TABLE settings RENAME TO gone"))
        await until(lambda: not overrides.up)
        assert overrides.changes.why_never(FAST) is not None
    finally:
        await overrides.close()
        await overrides.database.close()
    told = [line for line in lines.lines if "run time" in line]
    assert [("cannot be read" in line, '"known":0' in line, '"known":1' in line) for line in told] == [
        (True, True, False),
        (False, True, False),
        (False, False, False),
        (True, False, True),
    ]


async def until(true: Any) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - another task's state
            await asyncio.sleep(0.01)


async def test_tables_without_their_settings(database: Database, overrides: Overrides) -> None:
    async with database.write() as connection:
        await connection.execute(text("DELETE FROM settings"))
    with pytest.raises(DatabaseDown, match="lacks the version"):
        await overrides.refresh()


async def test_no_database_no_changes() -> None:
    none = NoOverrides()
    await none.start()
    await none.close()
    assert (none.changes, none.up) == (Changes(), False)
    for refused in (
        none.close_model("m", True, "", "x"),
        none.drain("u", TARGETS[0], True, "x"),
        none.set_arms("e", None, "x"),
        none.ask_reload("x", {}),
        none.audited(1),
    ):
        with pytest.raises(DatabaseDown):
            await refused
