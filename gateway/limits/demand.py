"""What a call asks of the limits: whose limits apply to it, and how much it may use at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gateway.body import Body
from gateway.call import Call, Endpoint
from gateway.config.runtime import Budget, Limit
from gateway.limits.store import NANO, Demand, Purse, Rate, Slot

Kind = Literal["key", "team", "route", "model"]
What = Literal["concurrency", "requests", "tokens", "budget"]

DAY = 86_400
_MOST = 10**9 * NANO
_KEEP: Mapping[str, int] = MappingProxyType({"day": 2 * DAY, "month": 40 * DAY, "total": 400 * DAY})
"""Seconds for which a store keeps a purse after its last use."""


class Scope(Struct, frozen=True, gc=False):
    """Whoever a limit belongs to."""

    kind: Kind
    name: str
    limit: Limit | None = None
    budget: Budget | None = None


class Wanted(Struct, frozen=True, gc=False):
    """One demand, and whose limit it meets."""

    scope: Scope
    what: What
    demand: Demand

    @property
    def label(self) -> str:
        """For metrics: `key_requests`, `model_concurrency`, ..."""
        return f"{self.scope.kind}_{self.what}"


def of_limit(scope: Scope, tokens: int) -> Iterator[Wanted]:
    """The demands of one scope's limit, for a call of at most so many tokens."""
    limit, key = scope.limit, f"{scope.kind}:{scope.name}"
    if limit is None:
        return
    if limit.concurrency is not None:
        yield Wanted(scope, "concurrency", Slot(f"{key}:slots", limit.concurrency))
    if limit.requests_per_minute is not None:
        yield Wanted(scope, "requests", Rate(f"{key}:requests", limit.requests_per_minute, 1))
    if limit.tokens_per_minute is not None:
        yield Wanted(scope, "tokens", Rate(f"{key}:tokens", limit.tokens_per_minute, tokens))


def of_budget(scope: Scope, usd: Decimal, spent: int, now: datetime) -> Iterator[Wanted]:
    """The demand on one scope's budget. `usd`: what the call may cost at most; `spent`: nano-dollars, as the ledger
    knows them."""
    budget = scope.budget
    if budget is not None:
        key = f"{scope.kind}:{scope.name}:usd:{period(budget.per, now)}"
        yield Wanted(scope, "budget", Purse(key, nano(budget.usd), nano(usd), spent, _KEEP[budget.per]))


def nano(usd: Decimal) -> int:
    """Dollars in nano-dollars, rounded up; a billion dollars at most, which every store can count."""
    return min(_MOST, int((usd * NANO).to_integral_value(ROUND_CEILING)))


def period(per: str, now: datetime) -> str:
    """The name of the budget period that `now` (UTC) is in."""
    return {"day": f"{now:%Y-%m-%d}", "month": f"{now:%Y-%m}", "total": "total"}[per]


def next_period(per: str, now: datetime) -> datetime | None:
    """When the next period begins; None: never."""
    day = datetime(now.year, now.month, now.day, tzinfo=UTC)
    if per == "day":
        return day + timedelta(days=1)
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1) if per == "month" else None


def most_completion(endpoint: Endpoint, body: Body, prompts: int, usual: int) -> int:
    """Completion tokens that a call may use: what it allows itself for each of its answers; `usual` where it says
    nothing."""
    if endpoint.name == "embeddings":
        return 0
    allowed = body.number("max_completion_tokens")
    if allowed is None:
        allowed = body.number("max_tokens")
    answers = max(1, body.number("n") or 1, body.number("best_of") or 1)
    return (usual if allowed is None else allowed) * answers * prompts


class Sizes:
    """What answers of each model usually take, learned from those that came: moving averages, in this process."""

    _WEIGHT = 0.1

    def __init__(self, first_tokens: int = 512) -> None:
        self._first = first_tokens
        self._tokens: dict[str, float] = {}
        self._usd: dict[str, Decimal] = {}

    def tokens(self, model: str) -> int:
        """Completion tokens of a usual answer."""
        return round(self._tokens.get(model, self._first))

    def usd(self, model: str, first: Decimal) -> Decimal:
        """Cost of a usual answer; `first` before any came."""
        return self._usd.get(model, first)

    def learn(self, call: Call) -> None:
        """Take a whole answer into the averages."""
        if call.answered is None or call.outcome != "ok":
            return
        name, weight = call.answered.model.name, self._WEIGHT
        seen = self._tokens.get(name)
        tokens = call.usage.completion
        self._tokens[name] = tokens if seen is None else seen + weight * (tokens - seen)
        usd = self._usd.get(name, call.cost)
        self._usd[name] = usd + Decimal(weight) * (call.cost - usd)
