"""Single calls of the ledger, in both kinds of database."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.accounting.row import Try
from gateway.accounting.search import FAILED, MOST_OF_ONE_ID, calls_of, failures
from gateway.database import Database, DatabaseDown
from tests.unit.accounting.rows import MADE, a_line, fill

pytestmark = pytest.mark.usefixtures("tables_here")

AT = 1_764_500_000_000


async def test_the_last_failed_calls(database: Database) -> None:
    tries = [Try("m0", "u0", "timeout", 1.5), Try("m1", "u1", "connect", 0.25)]
    await fill(
        database,
        a_line("a", outcome="upstream_timeout", status=504, at_ms=AT + 1, tried=tries),
        a_line("b", outcome="ok", at_ms=AT + 2),
        a_line("c", outcome="client_closed", at_ms=AT + 3),
        a_line("d", outcome="rate_limit_exceeded", status=429, at_ms=AT + 4, team=None, model=None, tried=[]),
    )
    later, earlier = await failures(database, 10)
    assert earlier == {
        "at": (AT + 1) / 1000,
        "request_id": "req_1",
        "key": "ci",
        "team": "platform",
        "route": "auto",
        "model": "m0",
        "upstream": "u0",
        "outcome": "upstream_timeout",
        "status": 504,
        "total_ms": 12.5,
        "tried": [
            {"model": "m0", "upstream": "u0", "cause": "timeout", "seconds": 1.5},
            {"model": "m1", "upstream": "u1", "cause": "connect", "seconds": 0.25},
        ],
    }
    assert (later["outcome"], later["team"], later["model"], later["tried"]) == ("rate_limit_exceeded", None, None, [])
    assert [row["outcome"] for row in await failures(database, 1)] == ["rate_limit_exceeded"]


async def test_everything_about_one_request(database: Database) -> None:
    await fill(database, a_line("a", request_id="mine", stream=True), a_line("b", request_id="other"))
    (call,) = await calls_of(database, "mine")
    expected = MADE | {"at": AT / 1000, "usd": 0.0000015, "stream": True, "request_id": "mine"}
    for gone in ("at_ms", "cost_nano_usd"):
        del expected[gone]
    tried = [{"model": "m0", "upstream": "u0", "cause": "", "seconds": 0.01}]
    drafted = dict.fromkeys(("drafts", "accepted", "draft_tokens", "answer_kind"))
    assert call == expected | {"tried": tried, **drafted}
    assert call["stream"] is True
    assert await calls_of(database, "nobody's") == []
    assert await calls_of(database, "x" * 100_000) == []
    assert await calls_of(database, "' OR 1=1 --") == []


async def test_one_id_of_many_calls(database: Database) -> None:
    await fill(database, *(a_line(f"{n}", at_ms=AT + n) for n in range(MOST_OF_ONE_ID + 3)))
    found = await calls_of(database, "req_1")
    assert len(found) == MOST_OF_ONE_ID
    assert found[0]["at"] == (AT + MOST_OF_ONE_ID + 2) / 1000


@pytest.mark.parametrize("where", [f"{FAILED} ORDER BY at_ms DESC LIMIT 5", "request_id = 'x'"])
async def test_single_calls_are_found_by_an_index(database: Database, where: str) -> None:
    if database.place.kind != "sqlite":
        pytest.skip("its planner looks at the size of the table")
    async with database.read() as connection:
        plan = (await connection.execute(text(f"EXPLAIN QUERY PLAN SELECT * FROM calls WHERE {where}"))).all()
    assert "USING INDEX calls_" in str(plan)
    assert "TEMP B-TREE" not in str(plan)


async def test_no_database(tmp_path: Path) -> None:
    database = Database("sqlite:///no/such/folder/t.db", tmp_path)
    with pytest.raises(DatabaseDown):
        await failures(database, 1)
