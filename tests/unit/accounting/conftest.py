"""The ledger's database, as each of the two kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.database import Database
from tests.fakes.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """An empty one with its tables."""
    url = "sqlite:///turnout.db"
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_database()
    database = Database(url, tmp_path)
    await database.migrate()
    yield database
    await database.close()
