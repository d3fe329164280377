"""Who is asked for how much."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gateway.call import ENDPOINTS
from gateway.config.runtime import Budget, Limit
from gateway.edge.body import parse
from gateway.limits.demand import DAY, Scope, Sizes, most_completion, nano, next_period, of_budget, of_limit, period
from gateway.limits.store import NANO, Purse, Rate, Slot
from tests.unit.building import a_call, a_model, answered

NOW = datetime(2026, 12, 31, 23, 30, tzinfo=UTC)


def test_a_limit_asks_for_what_it_limits() -> None:
    scope = Scope("team", "core", Limit(requests_per_minute=60, tokens_per_minute=1000, concurrency=3))
    assert [(w.label, w.demand) for w in of_limit(scope, 70)] == [
        ("team_concurrency", Slot("team:core:slots", 3)),
        ("team_requests", Rate("team:core:requests", 60, 1)),
        ("team_tokens", Rate("team:core:tokens", 1000, 70)),
    ]
    assert list(of_limit(Scope("team", "core", Limit()), 70)) == list(of_limit(Scope("team", "core"), 70)) == []


def test_a_budget_asks_for_its_period() -> None:
    scope = Scope("key", "ci", budget=Budget(Decimal("0.5"), "month"))
    (wanted,) = of_budget(scope, Decimal("0.0000000015"), 7, NOW)
    assert wanted.demand == Purse("key:ci:usd:2026-12", NANO // 2, 2, 7, 40 * DAY)
    assert list(of_budget(Scope("key", "ci"), Decimal(1), 0, NOW)) == []


@pytest.mark.parametrize(
    ("per", "name", "after"),
    [
        ("day", "2026-12-31", datetime(2027, 1, 1, tzinfo=UTC)),
        ("month", "2026-12", datetime(2027, 1, 1, tzinfo=UTC)),
        ("total", "total", None),
    ],
)
def test_periods(per: str, name: str, after: datetime | None) -> None:
    assert (period(per, NOW), next_period(per, NOW)) == (name, after)


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, 512),
        ({"max_tokens": 100}, 100),
        ({"max_tokens": 100, "max_completion_tokens": 70}, 70),
        ({"max_tokens": 100, "n": 3}, 300),
        ({"n": 3}, 1536),
        ({"max_tokens": 10, "best_of": 5}, 50),
        ({"max_tokens": 10, "prompt": ["a", "b", "c"]}, 30),
        ({"max_tokens": 10, "prompt": [[1, 2], [3]], "n": 2}, 40),
        ({"max_tokens": 10, "prompt": ["a", "b"], "best_of": 5}, 100),
        ({"max_tokens": 10, "prompt": [1, 2, 3]}, 10),
        ({"max_tokens": 10, "prompt": "abc"}, 10),
        ({"max_tokens": 0}, 0),
        # some upstreams take these
        ({"max_tokens": "100", "n": "2"}, 200),
        ({"max_tokens": 100.0}, 100),
        ({"max_tokens": 1.5}, 2),
        ({"max_tokens": 10**20}, 10**12),
        ({"max_tokens": 1e300}, 10**12),
        # what only an upstream can judge counts as not given
        ({"max_tokens": None}, 512),
        ({"max_tokens": -5}, 512),
        ({"max_tokens": "many"}, 512),
        ({"max_tokens": "nan"}, 512),
        ({"max_tokens": [5]}, 512),
        ({"max_tokens": True, "n": 0}, 512),
    ],
)
def test_the_most_that_may_come_back(fields: dict[str, Any], tokens: int) -> None:
    body = json.dumps({"model": "auto", "messages": [], **fields}).encode()
    asked = parse(body, ENDPOINTS["chat"])
    assert most_completion(ENDPOINTS["chat"], asked, asked.prompts, 512) == tokens


def test_embeddings_have_no_completion() -> None:
    body = parse(b'{"model":"auto","input":"x","max_tokens":9}', ENDPOINTS["embeddings"])
    assert most_completion(ENDPOINTS["embeddings"], body, 1, 512) == 0


def test_money_is_rounded_up() -> None:
    assert nano(Decimal("1.0000000001")) == NANO + 1
    assert nano(Decimal(0)) == 0
    assert nano(Decimal("1e300")) == 10**9 * NANO


def test_usual_sizes_are_learned_from_whole_answers() -> None:
    sizes = Sizes(first_tokens=500)
    assert (sizes.tokens("m0"), sizes.usd("m0", Decimal(7))) == (500, Decimal(7))
    sizes.learn(answered(a_call(), a_model(), completion=100, cost="0.01"))
    assert (sizes.tokens("m0"), sizes.usd("m0", Decimal(7))) == (100, Decimal("0.01"))
    sizes.learn(answered(a_call(), a_model(), completion=200, cost="0.02"))
    assert sizes.tokens("m0") == 110
    assert round(sizes.usd("m0", Decimal(7)), 6) == Decimal("0.011")
    sizes.learn(answered(a_call(), a_model(), completion=9000, cost="9", outcome="client_closed"))
    sizes.learn(a_call())
    assert sizes.tokens("m0") == 110
