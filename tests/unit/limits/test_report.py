"""What callers are told about limits."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from gateway.config.runtime import Budget
from gateway.limits.demand import Scope, Wanted
from gateway.limits.report import headers, refusal, span
from gateway.limits.store import NANO, Purse, Rate, Slot, Taken

KEY = Scope("key", "ci", budget=Budget(Decimal("2.50"), "month"))
TEAM = Scope("team", "core")
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
REQUESTS = Wanted(KEY, "requests", Rate("a", 60, 1))
TOKENS = Wanted(KEY, "tokens", Rate("b", 1000, 300))
TEAM_REQUESTS = Wanted(TEAM, "requests", Rate("c", 6, 1))
CALLS = Wanted(KEY, "concurrency", Slot("d", 2))
MONEY = Wanted(KEY, "budget", Purse("e", 5 * NANO // 2, 1, 0, 9))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0101, "11ms"), (0.9999, "1000ms"), (1, "1s"), (1.2, "2s"), (59.5, "1m0s"), (360, "6m0s")],
)
def test_spans_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_the_limit_that_is_closest_to_its_end_is_told() -> None:
    told = dict(headers([REQUESTS, TOKENS, TEAM_REQUESTS, CALLS], Taken(None, 0, (59, 700, 2, 1)), 60.0))
    assert told == {
        b"x-ratelimit-limit-requests": b"6",
        b"x-ratelimit-remaining-requests": b"2",
        b"x-ratelimit-reset-requests": b"40s",
        b"x-ratelimit-limit-tokens": b"1000",
        b"x-ratelimit-remaining-tokens": b"700",
        b"x-ratelimit-reset-tokens": b"18s",
    }


def test_a_bucket_in_debt_has_nothing_left() -> None:
    told = dict(headers([TOKENS], Taken(0, 9, (-500,)), 60.0))
    assert told[b"x-ratelimit-remaining-tokens"] == b"0"
    assert told[b"x-ratelimit-reset-tokens"] == b"1m30s"


def test_without_limits_nothing_is_told() -> None:
    assert headers([CALLS, MONEY], Taken(None, 0, (1, 1)), 60.0) == ()
    assert headers([], Taken(None, 0, ()), 60.0) == ()


def test_a_rate() -> None:
    error = refusal(TEAM_REQUESTS, 9.2, NOW)
    assert (error.code, error.status, error.retry_after) == ("rate_limit_exceeded", 429, 9.2)
    assert error.message == "The limit of 6 requests per minute of team 'core' is reached."


def test_what_can_never_fit() -> None:
    error = refusal(Wanted(KEY, "tokens", Rate("b", 1000, 5000)), math.inf, NOW)
    assert (error.code, error.retry_after, error.should_retry) == ("rate_limit_exceeded", None, False)
    assert "5000 tokens" in error.message
    assert "lower max_tokens" in error.message


def test_calls_at_the_same_time() -> None:
    error = refusal(CALLS, 0, NOW)
    assert (error.code, error.retry_after) == ("rate_limit_exceeded", 1.0)
    assert error.message == "Key 'ci' has as many calls under way as it may have at the same time (2)."


@pytest.mark.parametrize(("usd", "text"), [("50.0", "$50.00"), ("0.005", "$0.005"), ("1E+3", "$1000.00")])
def test_money_is_written_as_money(usd: str, text: str) -> None:
    wanted = Wanted(Scope("key", "ci", budget=Budget(Decimal(usd), "day")), "budget", MONEY.demand)
    assert f"budget of {text} a day" in refusal(wanted, 0, NOW).message


def test_a_budget() -> None:
    error = refusal(MONEY, 0, NOW)
    assert (error.code, error.status, error.should_retry) == ("insufficient_quota", 429, False)
    assert "budget of $2.50 a month of key 'ci'" in error.message
    assert "2026-12-01" in error.message
    assert error.retry_after == 12 * 3600
    for_good = Wanted(Scope("team", "core", budget=Budget(Decimal(9), "total")), "budget", MONEY.demand)
    assert refusal(for_good, 0, NOW).retry_after is None
