"""What the ledger costs a call: its row, the row as a line, the line in the journal; and reading it back in."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.bodies import chat_body
from benchmarks.micro.planning import KINDS, runtime_of
from benchmarks.micro.timing import Cases
from gateway.accounting.journal import Journal
from gateway.accounting.row import row_of
from gateway.accounting.shipping import sorted_out
from gateway.call import Attempt, Call, Caller, Plan, Tried, Usage
from gateway.wiring import call_of

ENDED = 102.0


def a_call() -> Call:
    """One that has ended well."""
    runtime = runtime_of(KINDS["task"], 1)
    call = call_of(runtime, {}, Caller("ci", "platform"), chat_body(1_024, "MOCK:reply=1024;", messages=2))
    model = runtime.models["fast"]
    call.arrived, call.waited, call.first_token = 100.0, 1.9, 101.0
    call.plan = Plan("auto", "rule-0", (Attempt(model, "rule-0"),), task="chat")
    call.answered = call.plan.attempts[0]
    call.tried = [Tried(model.name, model.upstream.name, 100.0)]
    call.usage, call.cost, call.outcome, call.status = Usage(1000, 200, 0, 0, True), Decimal("0.00123"), "ok", 200
    return call


def cases() -> Cases:
    """Step by step, then all that a call waits for, then what goes on beside it."""
    call, encode = a_call(), msgspec.json.Encoder().encode
    row = row_of(call, "a-1", ENDED)
    line = encode(row) + b"\n"
    yield "row of a call", partial(row_of, call, "a-1", ENDED)
    yield "row as a line", partial(encode, row)
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        journal = Journal(Path(folder), "bench", bound=1 << 60)
        yield "line into the journal", partial(journal.append, line)
        yield "all of it", lambda: journal.append(encode(row_of(call, "a-1", ENDED)) + b"\n")
        journal.close()
    yield "beside: 100 lines checked", partial(sorted_out, [line[:-1]] * 100)
