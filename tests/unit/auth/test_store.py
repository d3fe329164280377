"""Created keys in SQLite and PostgreSQL: every change whole, audited, and seen by whoever watches the version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from gateway.auth.record import KeyRecord, KeyRefused
from gateway.auth.secret import digest
from gateway.auth.store import PAGE, REMEMBERED_MS
from tests.fakes.postgres import Postgres
from tests.unit.auth.keys import DAY, START, Keys, a_store

pytestmark = pytest.mark.usefixtures("tables_here")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
async def keys(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Keys]:
    sqlite = request.param == "sqlite"
    url = "sqlite:///t.db" if sqlite else request.getfixturevalue("postgres").new_database()
    async with a_store(url, tmp_path) as keys:
        yield keys


async def audit(keys: Keys) -> list[tuple[Any, ...]]:
    statement = "SELECT at_ms, actor, action, target, CAST(detail AS TEXT) FROM audit ORDER BY id"
    async with keys.database.read() as connection:
        return [tuple(row) for row in (await connection.execute(text(statement))).all()]


async def changed(keys: Keys, version: int) -> list[KeyRecord]:
    return [key async for page in keys.store.pages(version) for key in page]


async def test_a_key_comes_back_as_it_was_made(keys: Keys) -> None:
    secret = await keys.create(
        team="core",
        models="auto",
        limits={"requests_per_minute": 5},
        budget={"usd": "0.1", "per": "total"},
        expires="30d",
        metadata={"größe": "大"},
    )
    key = await keys.get()
    made = KeyRecord(key.name, "core", ("auto",), key.limits, key.budget, {"größe": "大"}, START, START + 30 * DAY)
    assert key.limits is not None
    assert key.budget is not None
    assert (key.limits.requests_per_minute, str(key.budget.usd), key.budget.per) == (5, "0.1", "total")
    (kept,) = key.secrets
    assert key == KeyRecord(**{n: getattr(made, n) for n in made.__slots__} | {"secrets": (kept,)})
    assert (kept.prefix, kept.until_ms) == (secret[:19], None)
    assert kept.digest == digest((await keys.store.mark()).pepper, secret.encode())
    await keys.create("plain")
    assert (await keys.get("plain")).document(START)["models"] is None
    assert [k.name for k in await keys.store.all()] == ["ci", "plain"]


async def test_every_change_is_seen_once(keys: Keys) -> None:
    assert (await keys.store.mark()).version == 0
    await keys.create("a")
    await keys.create("b")
    assert [k.name for k in await changed(keys, -1)] == ["a", "b"]
    assert [k.name for k in await changed(keys, 1)] == ["b"]
    await keys.store.rotate("a", 0, "tester")
    assert [k.name for k in await changed(keys, 2)] == ["a"]
    await keys.store.revoke("b", "tester")
    mark = await keys.store.mark()
    assert mark.version == 4
    assert [k.name for k in await changed(keys, 3)] == ["b"]
    assert await changed(keys, mark.version) == []


async def test_the_audit(keys: Keys) -> None:
    secret = await keys.create(team="core", limits={"concurrency": 2})
    keys.time.ms += 1
    _, new = await keys.store.rotate("ci", DAY, "someone")
    await keys.store.revoke("ci", "someone else")
    await keys.store.revoke("ci", "too late")
    rows = await audit(keys)
    assert [row[:4] for row in rows] == [
        (START, "tester", "keys.create", "ci"),
        (START + 1, "someone", "keys.rotate", "ci"),
        (START + 1, "someone else", "keys.revoke", "ci"),
    ]
    assert '"team":"core"' in rows[0][4]
    assert '"old_until":"2027-01-16T08:00:00Z"' in rows[1][4]
    assert not [row for row in rows if secret in row[4] or new in row[4]]


async def test_refused_changes_leave_nothing(keys: Keys) -> None:
    await keys.create()
    with pytest.raises(KeyRefused, match="there is a key 'ci' already"):
        await keys.create()
    for change in (keys.store.revoke("no", "x"), keys.store.rotate("no", 0, "x"), keys.store.get("no")):
        with pytest.raises(KeyRefused, match="there is no created key 'no'"):
            await change
    await keys.store.revoke("ci", "x")
    with pytest.raises(KeyRefused, match="the key 'ci' is revoked"):
        await keys.store.rotate("ci", 0, "x")
    await keys.create("short", expires="1h")
    keys.time.ms += DAY
    with pytest.raises(KeyRefused, match="the key 'short' is expired"):
        await keys.store.rotate("short", 0, "x")
    assert len(await audit(keys)) == (await keys.store.mark()).version == 3


async def test_rotations_shorten_but_never_lengthen(keys: Keys) -> None:
    await keys.create()
    await keys.store.rotate("ci", DAY, "x")
    await keys.store.rotate("ci", 10 * DAY, "x")
    keys.time.ms += 1
    key, _ = await keys.store.rotate("ci", 2 * DAY, "x")
    assert [s.until_ms for s in key.secrets if s.created_ms == START + 1] == [None]
    assert sorted(s.until_ms or 0 for s in key.secrets) == [0, START + DAY, START + 2 * DAY + 1, START + 2 * DAY + 1]
    keys.time.ms += REMEMBERED_MS + 3 * DAY
    key, _ = await keys.store.rotate("ci", 0, "x")
    assert [s.until_ms for s in key.secrets] == [None, keys.time.ms]


async def test_what_is_usable(keys: Keys) -> None:
    assert not await keys.store.usable()
    await keys.create("short", expires="1h")
    assert await keys.store.usable()
    keys.time.ms += DAY
    assert not await keys.store.usable()
    await keys.create()
    assert await keys.store.usable()
    await keys.store.revoke("ci", "x")
    assert not await keys.store.usable()


async def test_what_ended_long_ago_is_forgotten(keys: Keys) -> None:
    await keys.create("revoked")
    await keys.create("short", expires="1h")
    await keys.create("live")
    await keys.store.revoke("revoked", "x")
    keys.time.ms += REMEMBERED_MS
    assert [k.name for k in await changed(keys, -1)] == ["live", "short"]
    keys.time.ms += DAY
    assert [k.name for k in await changed(keys, -1)] == ["live"]
    assert len(await keys.store.all()) == 3


async def test_many_keys_come_in_pages(keys: Keys) -> None:
    row = {"created_ms": START, "metadata": "{}"}
    async with keys.database.write() as connection:
        for number in range(PAGE + 3):
            values = row | {"name": f"k{number}", "digest": str(number).encode()}
            columns = "INSERT INTO keys (name, created_ms, metadata, changed) VALUES (:name, :created_ms, :metadata, 1)"
            await connection.execute(text(columns), {n: values[n] for n in ("name", "created_ms", "metadata")})
            secret = (
                "INSERT INTO key_secrets (digest, key, prefix, created_ms) VALUES (:digest, :name, 'sk', :created_ms)"
            )
            await connection.execute(text(secret), {n: values[n] for n in ("digest", "name", "created_ms")})
    sizes = [len(page) async for page in keys.store.pages()]
    assert sizes == [PAGE, 3]
    assert len({key.name for key in await changed(keys, 0)}) == PAGE + 3


async def test_there_is_a_most(tmp_path: Path) -> None:
    async with a_store("sqlite:///t.db", tmp_path, most=2) as keys:
        await keys.create("a")
        await keys.create("b")
        with pytest.raises(KeyRefused, match="there are 2 keys, which is the most"):
            await keys.create("c")
        await keys.store.revoke("a", "x")
        keys.time.ms += REMEMBERED_MS + 1
        await keys.create("c")


async def test_changes_at_the_same_time(keys: Keys) -> None:
    results = await asyncio.gather(
        *(keys.create("same") for _ in range(4)), *(keys.create(f"own{n}") for n in range(4)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, KeyRefused)]
    assert len(refused) == 3
    assert {key.name for key in await keys.store.all()} == {"same", "own0", "own1", "own2", "own3"}
    assert (await keys.store.mark()).version == 5


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_no_secret_is_in_the_file(tmp_path: Path) -> None:
    async with a_store("sqlite:///t.db", tmp_path) as keys:
        secrets = [await keys.create(), (await keys.store.rotate("ci", DAY, "x"))[1]]
        await keys.store.revoke("ci", "x")
    written = await asyncio.to_thread(everything_in, tmp_path)
    assert secrets[0][:19].encode() in written
    for secret in secrets:
        assert secret.encode() not in written
        assert secret[19:59].encode() not in written
