"""Rows and finished calls for the ledger's tests."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
from sqlalchemy import text

from gateway.accounting.row import Row, Try
from gateway.accounting.shipping import insert
from gateway.call import Attempt, Call, Caller, Plan, Tried, Usage
from gateway.database import Database
from tests.unit.building import a_call, a_runtime

MADE = {
    "at_ms": 1_764_500_000_000,
    "request_id": "req_1",
    "endpoint": "chat",
    "key": "ci",
    "team": "platform",
    "route": "auto",
    "rule": "default",
    "experiment": None,
    "arm": None,
    "model": "m0",
    "upstream": "u0",
    "task": "chat",
    "outcome": "ok",
    "probability": None,
    "attempts": 1,
    "stream": False,
    "prompt_tokens": 100,
    "cached_tokens": 10,
    "completion_tokens": 20,
    "reasoning_tokens": 5,
    "cost_nano_usd": 1_500,
    "reported": True,
    "total_ms": 12.5,
    "first_token_ms": None,
    "own_ms": 0.25,
    "status": 200,
}


def a_row(row_id: str, **changes: Any) -> Row:
    """A row of an ordinary call."""
    return Row(id=row_id, **{**MADE, "tried": [Try("m0", "u0", "", 0.01)], **changes})


def a_line(row_id: str, **changes: Any) -> bytes:
    """The same as the journal has it, without the line's end."""
    return msgspec.json.encode(a_row(row_id, **changes))


def a_finished_call(number: int = 1, key: str = "ci", **changes: Any) -> Call:
    """A call that was answered at the second attempt."""
    call = a_call(runtime=a_runtime())
    model = call.runtime.models["m0"]
    call.id, call.caller = f"req_{number}", Caller(key, "platform")
    call.plan = Plan("auto", "default", (Attempt(model, "default"),), task="chat")
    call.answered = call.plan.attempts[0]
    call.tried = [Tried("m1", "u1", 100.5, "timeout"), Tried("m0", "u0", 101.0)]
    call.usage, call.cost = Usage(100, 20, 10, 5, True), Decimal("0.0000015")
    call.waited, call.first_token, call.status, call.outcome = 1.75, 101.25, 200, "ok"
    for name, value in changes.items():
        setattr(call, name, value)
    return call


async def fill(database: Database, *rows: bytes) -> None:
    """Put rows into `calls`."""
    assert await insert(database, "calls", list(rows)) == []


async def ids(database: Database, table: str = "calls") -> list[str]:
    """The ids that a table holds, sorted."""
    async with database.read() as connection:
        return list((await connection.execute(text(f"SELECT id FROM {table} ORDER BY id"))).scalars())
