"""A finished call becomes a row that holds all of it, and none of its text."""

from __future__ import annotations

import time
from decimal import Decimal

import msgspec
import pytest
from sqlalchemy import text

from gateway.accounting.row import Row, nano, row_of
from gateway.accounting.shipping import TABLES
from gateway.call import Split
from gateway.database import Database
from tests.unit.accounting.rows import a_finished_call
from tests.unit.building import a_call

pytestmark = pytest.mark.usefixtures("tables_here")


def test_the_row_of_an_answered_call() -> None:
    call = a_finished_call()
    before = time.time()
    row = row_of(call, "r1", 102.0)
    assert before - 2.001 <= row.at_ms / 1000 <= time.time() - 1.999  # when it came
    assert (row.id, row.request_id, row.key, row.team) == ("r1", "req_1", "ci", "platform")
    assert (row.route, row.rule, row.task, row.model, row.upstream) == ("auto", "default", "chat", "m0", "u0")
    assert (row.prompt_tokens, row.cached_tokens, row.completion_tokens, row.reasoning_tokens) == (100, 10, 20, 5)
    assert (row.cost_nano_usd, row.reported, row.outcome, row.status) == (1_500, True, "ok", 200)
    assert (row.total_ms, row.first_token_ms, row.own_ms) == (2000.0, 1250.0, 250.0)
    tried = [(t.model, t.upstream, t.cause, t.seconds) for t in row.tried]
    assert tried == [("m1", "u1", "timeout", 0.5), ("m0", "u0", "", 1.0)]
    assert row.attempts == 2


def test_the_row_of_a_call_that_reached_nobody() -> None:
    call = a_call()
    call.outcome, call.status = "invalid_api_key", 401
    row = row_of(call, "r1", 100.5)
    assert (row.model, row.upstream, row.route, row.tried, row.attempts) == (None, None, None, [], 0)
    assert row.own_ms == 500.0


def test_a_failed_call_names_the_model_that_was_tried_last() -> None:
    call = a_finished_call(answered=None)
    call.tried = call.tried[:1]
    row = row_of(call, "r1", 102.0)
    assert (row.model, row.upstream) == ("m1", "u1")


def test_an_arm_comes_with_its_probability() -> None:
    call = a_finished_call()
    assert call.plan is not None
    call.plan = msgspec.structs.replace(call.plan, split=Split("x", "m0", 0.25))
    row = row_of(call, "r1", 102.0)
    assert (row.experiment, row.arm, row.probability) == ("x", "m0", 0.25)


def test_money_is_exact() -> None:
    assert nano(Decimal("0.000000001")) == 1
    assert nano(Decimal("123456.789012345")) == 123_456_789_012_345
    assert nano(Decimal("1e30")) == 2**63 - 1


async def test_rows_have_the_columns_of_their_tables(database: Database) -> None:
    for row, table in TABLES.items():
        async with database.read() as connection:
            found = await connection.execute(text(f"SELECT * FROM {table}"))
            assert set(row.__struct_fields__) == set(found.keys())
    assert Row.__struct_fields__[0] == "id"
