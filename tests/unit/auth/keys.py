"""Stores of created keys for the tests of this folder: a database of their own, a clock that stands where it is put."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.auth.asked import new_key
from gateway.auth.record import KeyRecord
from gateway.auth.store import MOST_KEYS, KeyStore
from gateway.database import Database
from tests.unit.building import a_runtime

START = 1_800_000_000_000
"""2027-01-15 08:00 UTC."""
DAY = 86_400_000


@dataclass
class Time:
    """Milliseconds since 1970, moved by hand."""

    ms: int = START

    def __call__(self) -> int:
        return self.ms


@dataclass
class Keys:
    """A store, and the time that it goes by."""

    database: Database
    most: int = MOST_KEYS
    time: Time = field(default_factory=Time)

    def __post_init__(self) -> None:
        self.store = KeyStore(self.database, self.time, self.most)

    async def create(self, name: str = "ci", **fields: Any) -> str:
        """A new key; its secret."""
        key = new_key({"name": name, **fields}, a_runtime(), self.time.ms)
        return (await self.store.create(key, "tester"))[1]

    async def get(self, name: str = "ci") -> KeyRecord:
        return await self.store.get(name)


@asynccontextmanager
async def a_store(url: str, folder: Path, most: int = MOST_KEYS) -> AsyncIterator[Keys]:
    """An empty one."""
    database = Database(url, folder)
    await database.migrate()
    try:
        yield Keys(database, most)
    finally:
        await database.close()
