"""The estimate for calls without a reported usage."""

from __future__ import annotations

from gateway.accounting.usage import estimated
from gateway.call import Attempt, Usage
from tests.unit.building import a_call, a_model


def test_an_answer_without_usage_is_estimated() -> None:
    call = a_call(b'{"model":"auto","messages":[]}' + b" " * 370)
    call.answered, call.events = Attempt(a_model(), ""), 7
    assert estimated(call, lambda c: len(c.body.raw) // 4) == Usage(prompt=100, completion=7, reported=False)


def test_no_answer_is_no_usage() -> None:
    call = a_call()
    call.events = 7
    assert estimated(call, lambda c: 99) == Usage(0, 0)
