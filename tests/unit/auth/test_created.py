"""Created keys in memory: what a secret opens, how changes arrive, and a database that is down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import text

from gateway.auth.created import CreatedKeys, NoKeys
from gateway.auth.secret import new_secret
from gateway.database import Database
from gateway.errors import GatewayError
from gateway.telemetry.logs import Writer, logger
from tests.fakes.postgres import Postgres
from tests.unit.auth.keys import DAY, Keys, a_store

pytestmark = pytest.mark.usefixtures("tables_here")

SOON = 20.0


class Log:
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def msg(self, line: str) -> None:
        self.lines.append(json.loads(line))

    debug = info = warning = error = critical = msg


@pytest.fixture
async def keys(tmp_path: Path) -> AsyncIterator[Keys]:
    async with a_store("sqlite:///t.db", tmp_path) as keys:
        yield keys


@pytest.fixture
def log() -> Log:
    return Log()


def snapshot(keys: Keys, log: Log, url: str = "sqlite:///t.db", every: float = 0.01) -> CreatedKeys:
    """Another process's view of the same keys."""
    folder = keys.database.place.file
    other = Database(url, Path() if folder is None else folder.parent)
    return CreatedKeys(other, logger(cast(Writer, log), as_text=False), every, keys.time)


@pytest.fixture
async def created(keys: Keys, log: Log) -> AsyncIterator[CreatedKeys]:
    """Follows by `refresh` only."""
    created = snapshot(keys, log, every=3600)
    await created.start()
    yield created
    await created.close()


def why(created: CreatedKeys, secret: str) -> str:
    with pytest.raises(GatewayError) as refused:
        created.find(secret.encode())
    assert (refused.value.code, refused.value.status) == ("invalid_api_key", 401)
    return refused.value.message


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not true():  # noqa: ASYNC110 - what happens beside has no event
            await asyncio.sleep(0.005)


async def test_what_a_secret_opens(keys: Keys, created: CreatedKeys) -> None:
    secret = (await keys.create(team="core", models="auto", metadata={"a": "b"})).encode()
    assert created.find(secret) is None
    await created.refresh()
    caller = created.find(secret)
    assert caller == (await keys.get()).caller()
    for other in (secret[:-1], secret + b"0", secret.upper(), new_secret().encode(), b"", b"sk-turnout-", b"\xff"):
        assert created.find(other) is None


async def test_why_a_secret_opens_nothing(keys: Keys, created: CreatedKeys) -> None:
    first = await keys.create(expires="2d")
    _, second = await keys.store.rotate("ci", DAY, "x")
    await created.refresh()
    assert created.find(first.encode()) == created.find(second.encode()) is not None
    keys.time.ms += DAY
    assert (
        why(created, first) == "This API key was replaced by a newer one of 'ci'; it lasted until 2027-01-16 08:00 UTC."
    )
    assert created.find(second.encode())
    keys.time.ms += DAY
    for secret in (first, second):
        assert why(created, secret) == "The API key 'ci' expired on 2027-01-17 08:00 UTC."
    await keys.store.revoke("ci", "x")
    await created.refresh()
    for secret in (first, second):
        assert why(created, secret) == "The API key 'ci' was revoked on 2027-01-17 08:00 UTC."


async def test_a_rotation_without_overlap_counts_at_once(keys: Keys, created: CreatedKeys) -> None:
    first = await keys.create()
    _, second = await keys.store.rotate("ci", 0, "x")
    await created.refresh()
    assert "replaced" in why(created, first)
    assert created.find(second.encode())


async def test_changes_arrive_by_themselves(keys: Keys, log: Log) -> None:
    created = snapshot(keys, log)
    await created.start()
    secret = (await keys.create()).encode()
    await until(lambda: created.find(secret) is not None)
    await keys.store.revoke("ci", "x")
    with pytest.raises(GatewayError):
        await until(lambda: created.find(secret) is None)
    await created.close()
    assert log.lines == []


async def test_those_of_the_start_are_there_at_the_start(keys: Keys, log: Log) -> None:
    secret = (await keys.create()).encode()
    created = snapshot(keys, log)
    assert not created.known
    assert created.find(secret) is None
    await created.start()
    assert created.known
    assert created.find(secret)
    await created.close()


async def test_a_change_that_was_missed_counts_with_the_next(keys: Keys, created: CreatedKeys) -> None:
    secrets = [(await keys.create(f"k{n}")).encode() for n in range(3)]
    await keys.store.revoke("k0", "x")
    await asyncio.gather(created.refresh(), created.refresh())
    assert len(created) == 3
    assert why(created, secrets[0].decode())
    assert created.find(secrets[1])


@pytest.mark.parametrize("change", ["value = '0' WHERE name = 'keys_version'", "value = '00' WHERE name = 'pepper'"])
async def test_another_database_is_read_anew(keys: Keys, created: CreatedKeys, change: str) -> None:
    """As after a backup was put back."""
    secret = (await keys.create()).encode()
    await created.refresh()
    assert created.find(secret)
    async with keys.database.write() as connection:
        await connection.execute(text("DELETE FROM key_secrets"))
        await connection.execute(text(f"UPDATE settings SET {change}"))
    await created.refresh()
    assert created.find(secret) is None
    assert len(created) == 0


@pytest.mark.seconds
async def test_a_database_that_is_down_at_the_start(keys: Keys, log: Log, tmp_path: Path) -> None:
    created = snapshot(keys, log, "sqlite:///later/t.db")
    await created.start()
    assert not created.known
    await until(lambda: bool(log.lines))
    (tmp_path / "later").mkdir()
    await until(lambda: created.known)
    assert [line["level"] for line in log.lines] == ["error", "info"]
    assert log.lines[0]["event"].startswith("created keys cannot be read")
    await created.close()


@pytest.mark.slow
async def test_a_database_that_freezes_dies_and_returns(tmp_path: Path, log: Log) -> None:
    with Postgres() as postgres:
        url = postgres.new_database()
        async with a_store(url, tmp_path) as keys:
            secret = (await keys.create()).encode()
            created = snapshot(keys, log, url)
            await created.start()
            for trouble, end in ((postgres.freeze, postgres.thaw), (postgres.stop, postgres.start)):
                log.lines.clear()
                trouble()
                await until(lambda: [line["level"] for line in log.lines] == ["error"])
                assert created.find(secret)
                await asyncio.to_thread(end)
                await until(lambda: [line["level"] for line in log.lines] == ["error", "info"])
            await keys.database.close()  # its connections are of the server that died
            await keys.store.revoke("ci", "x")
            with pytest.raises(GatewayError):
                await until(lambda: created.find(secret) is None)
            await created.close()


async def test_what_ended_long_ago_is_forgotten(keys: Keys, created: CreatedKeys) -> None:
    revoked, live, rotated = await keys.create("revoked"), await keys.create("live"), await keys.create("rotated")
    short = await keys.create("short", expires="1d")
    _, new = await keys.store.rotate("rotated", DAY, "x")
    await keys.store.revoke("revoked", "x")
    await created.refresh()
    created._keys.forget(keys.time.ms)
    assert len(created) == 4
    created._keys.forget(keys.time.ms + 1)
    assert created.find(revoked.encode()) is None
    assert created.find(rotated.encode())
    keys.time.ms += DAY
    created._keys.forget(keys.time.ms + 1)
    for secret in (short, rotated):
        assert created.find(secret.encode()) is None
    for secret in (live, new):
        assert created.find(secret.encode())
    await keys.store.revoke("rotated", "x")
    await created.refresh()
    assert "revoked" in why(created, new)
    assert len(created) == 2


async def test_tables_without_their_settings(keys: Keys, log: Log) -> None:
    async with keys.database.write() as connection:
        await connection.execute(text("DELETE FROM settings"))
    created = snapshot(keys, log)
    await created.start()
    assert not created.known
    assert "lacks the pepper" in log.lines[0]["reason"]
    await created.close()


async def test_the_secrets_are_not_held(keys: Keys, created: CreatedKeys) -> None:
    secret = await keys.create()
    await created.refresh()
    held = repr(created._keys.entries) + repr(created._keys.digests)
    assert "ci" in held
    assert secret not in held
    assert secret[19:59] not in held


def test_no_keys() -> None:
    assert NoKeys().known
    assert NoKeys().find(new_secret().encode()) is None
