"""Two answers token by token: the same, a tie that rounding decides, or different."""

from __future__ import annotations

from typing import Any

import pytest

from serving.parity.compare import MARGIN, Answer, compare, interval


def said(*tokens: str, gap: float = 1.0, finish: str = "stop", error: str | None = None) -> Answer:
    return Answer(tokens, (("x", gap),) * len(tokens), "".join(tokens), finish, error)


@pytest.mark.parametrize(
    ("speculated", "plain", "result", "position"),
    [
        (said("a", "b"), said("a", "b"), "same", None),
        (said("a", "x"), said("a", "b"), "different", 1),
        (said("a", "x"), said("a", "b", gap=MARGIN), "tie", 1),
        (said("a"), said("a", "b"), "different", 1),
        (said("a", finish="length"), said("a"), "different", 1),
        (said(error="HTTP 500"), said("a"), "different", None),
        (said(error="HTTP 400: x"), said(error="HTTP 400: x"), "failed", None),
        (said("a", "zzz"), said("a", "b", gap=MARGIN), "different", 1),
        (Answer(text="x", finish="stop"), Answer(text="y", finish="stop"), "different", 0),
    ],
)
def test_a_verdict(speculated: Answer, plain: Answer, result: str, position: int | None) -> None:
    verdict = compare(speculated, plain)
    assert (verdict.result, verdict.position) == (result, position)


def test_what_a_report_shows_of_a_difference() -> None:
    verdict = compare(said("a", "x", "y" * 90), said("a", "b", gap=0.5))
    assert (verdict.gap, verdict.plain) == (0.5, "b")
    assert len(verdict.speculated) == 40


def step(token: str, best: float, second: float | None) -> dict[str, Any]:
    tops = [{"token": token, "logprob": best}]
    return {"token": token, "top_logprobs": tops + ([] if second is None else [{"token": "?", "logprob": second}])}


def test_an_answer_of_vllm() -> None:
    message = {"content": "ab", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    content = [step("a", -0.1, -2.1), step("b", -0.5, None)]
    choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": content}}
    answer = Answer.of(200, {"choices": [choice]})
    assert (answer.tokens, answer.text, answer.finish) == (("a", "b"), "abf({})", "stop")
    assert answer.seconds == (("?", 2.0), ("", 1000.0))


@pytest.mark.parametrize("document", [None, [], {}, {"choices": []}, {"error": {"message": "no"}}, {"error": 5}])
def test_what_is_no_answer(document: Any) -> None:
    assert (Answer.of(500, document).error or "").startswith("HTTP 500: ")


def test_wilsons_interval() -> None:
    """Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20."""
    for hits, of, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        assert interval(hits, of) == pytest.approx((low, high), abs=5e-4)
    assert interval(0, 0) == (0.0, 1.0)
