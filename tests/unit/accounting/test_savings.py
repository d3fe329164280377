"""What one model alone would have cost: a report that says how it was made and what it does not know."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.accounting.report import Line, Query, WrongQuery
from gateway.accounting.savings import METHOD, document, question, savings
from gateway.config.runtime import Price, Runtime
from tests.unit.building import a_model, a_runtime

DEAR = Price(input=Decimal(3), cached=Decimal(1), output=Decimal(15))


def runtime() -> Runtime:
    return a_runtime(
        a_model("cheap", price=Price(input=Decimal("0.5"), output=Decimal(1))),
        a_model("dear", price=DEAR),
        a_model("own", price=Price(gpu_second=Decimal("0.001"))),
        a_model("free"),
    )


def line(task: str | None, model: str | None, prompt: int, cached: int, completion: int, usd: str) -> Line:
    return Line((task, model), 2, 0, prompt, cached, completion, 0, Decimal(usd), 2, 0.0)


LINES = [
    line("chat", "cheap", 1_000_000, 0, 0, "0.5"),
    line("chat", "own", 0, 0, 1_000_000, "1"),
    line("debug", "dear", 1_000_000, 500_000, 0, "2"),
    line(None, "free", 1_000_000, 0, 0, "0"),
    line("chat", "gone", 1_000_000, 0, 0, "0"),
    line("chat", None, 0, 0, 0, "0"),
]


def test_the_report_by_task() -> None:
    report = savings(runtime(), "dear", LINES)
    rows = {row.task: (row.calls, row.paid_usd, row.alone_usd, row.saved_usd) for row in report.rows}
    assert rows == {
        "chat": (6, Decimal("1.5"), Decimal(21), Decimal("19.5")),
        None: (2, 0, Decimal(3), Decimal(3)),
        "debug": (2, Decimal(2), Decimal(2), 0),
    }
    assert list(rows) == ["chat", None, "debug"]  # what saved most comes first
    assert (report.total.calls, report.total.alone_usd, report.total.saved_usd) == (10, Decimal(26), Decimal("22.5"))


def test_it_says_what_it_does_not_know() -> None:
    report = savings(runtime(), "dear", LINES)
    assert (report.unpriced, report.by_time) == (("free", "gone"), ("own",))
    whole = document(report)
    assert (whole["estimate"], whole["method"]) == (True, METHOD)
    assert whole["models_without_price"] == ["free", "gone"]
    assert whole["tasks"][0] == {"task": "chat", "calls": 6, "paid_usd": 1.5, "alone_usd": 21.0, "saved_usd": 19.5}


@pytest.mark.parametrize("name", ["own", "free"])
def test_a_model_without_a_price_per_token(name: str) -> None:
    with pytest.raises(WrongQuery, match=f"'{name}' has no price per token .* these have one: cheap, dear"):
        savings(runtime(), name, [])


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(WrongQuery, match="no model 'x'; there are cheap, dear, own, free"):
        savings(runtime(), "x", [])
    with pytest.raises(WrongQuery, match="no model has one"):
        savings(a_runtime(a_model("free")), "free", [])


def test_what_is_asked_of_the_ledger() -> None:
    assert question(Query(("key",), key="ci")) == Query(("task", "model"), key="ci")
