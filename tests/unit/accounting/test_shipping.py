"""Lines reach the database once, whatever happens to their batch."""

from __future__ import annotations

import msgspec
import pytest
from sqlalchemy import text

from gateway.accounting.row import Content
from gateway.accounting.shipping import insert, sorted_out
from gateway.database import Database
from tests.unit.accounting.rows import a_line, a_row, ids

pytestmark = pytest.mark.usefixtures("tables_here")


def test_lines_find_their_tables() -> None:
    content = msgspec.json.encode(Content("a", 1, "text"))
    found, wrong = sorted_out([a_line("a"), content, a_line("a")[:40], b"", b"\xff", a_line("b")])
    assert found == {"calls": [a_line("a"), a_line("b")], "contents": [content]}
    assert wrong == 3


async def test_a_row_keeps_every_value(database: Database) -> None:
    row = a_row("a", probability=0.25, experiment="x", arm="m0", stream=True, first_token_ms=1.5, reported=False)
    assert await insert(database, "calls", [msgspec.json.encode(row)]) == []
    async with database.read() as connection:
        found = (await connection.execute(text("SELECT * FROM calls"))).mappings().one()
    expected = msgspec.to_builtins(row)
    tried = found["tried"] if isinstance(found["tried"], list) else msgspec.json.decode(found["tried"])
    assert tried == expected.pop("tried")
    del expected["type"]
    assert {name: found[name] for name in expected} == expected


async def test_the_same_row_twice_is_one_row(database: Database) -> None:
    await insert(database, "calls", [a_line("a"), a_line("b"), a_line("a")])
    await insert(database, "calls", [a_line("b", key="other"), a_line("c")])
    assert await ids(database) == ["a", "b", "c"]


@pytest.mark.slow
async def test_one_row_that_is_refused_does_not_cost_the_others(database: Database) -> None:
    bad = a_line("bad").replace(b'"endpoint":"chat"', b'"endpoint":null')
    refused = await insert(database, "calls", [a_line("a"), a_line("b"), bad, a_line("c"), a_line("d")])
    assert len(refused) == 1
    assert "endpoint" in refused[0]
    assert await ids(database) == ["a", "b", "c", "d"]
