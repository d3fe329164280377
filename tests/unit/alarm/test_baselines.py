"""Baselines in the database: the first that is final holds, and nothing is lost where there is no database."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import text

from gateway.alarm.baseline import BASELINE_CALLS, Baseline
from gateway.alarm.baselines import Baselines
from gateway.alarm.observation import Observation
from gateway.database import Database
from gateway.telemetry.logs import Writer, logger

pytestmark = pytest.mark.usefixtures("tables_here")


class Lines:
    """Where the log goes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def msg(self, line: str) -> None:
        self.lines.append(line)

    debug = info = warning = error = critical = msg


def learned(calls: int, accepted: int = 7) -> Baseline:
    baseline = Baseline("text")
    for _ in range(calls):
        baseline = baseline.plus(Observation("text", 5, 10, accepted, (1, 1, 3)))
    return baseline


@pytest.fixture
def lines() -> Lines:
    return Lines()


def kept_in(database: Database | None, lines: Lines) -> Baselines:
    return Baselines(database, logger(cast(Writer, lines), as_text=False))


async def test_the_first_that_is_final_holds(tmp_path: Path, lines: Lines) -> None:
    database = Database("sqlite:///t.db", tmp_path)
    baselines = kept_in(database, lines)
    assert await baselines.of("m", "c") == []
    assert await baselines.keep("m", "c", learned(50)) is None
    assert await baselines.keep("m", "c", learned(BASELINE_CALLS)) is None
    assert await baselines.of("m", "c") == [learned(BASELINE_CALLS)]
    assert await baselines.keep("m", "c", learned(BASELINE_CALLS, accepted=1)) == learned(BASELINE_CALLS)
    assert await baselines.of("m", "other") == await baselines.of("other", "c") == []
    async with database.write() as connection:
        await connection.execute(text("UPDATE baselines SET value = :value"), {"value": '{"kind":5}'})
    assert await baselines.of("m", "c") == []
    assert "cannot be read" in lines.lines[-1]
    await database.close()


@pytest.mark.parametrize("missing", [True, False])
async def test_without_a_database(tmp_path: Path, lines: Lines, missing: bool) -> None:
    database = None if missing else Database("sqlite:///none/t.db", tmp_path)
    baselines = kept_in(database, lines)
    assert await baselines.of("m", "c") == []
    assert await baselines.keep("m", "c", learned(1)) is None
    assert len(lines.lines) == (0 if missing else 2)
    if database is not None:
        await database.close()
