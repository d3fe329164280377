"""What a caller is told about limits: the headers of every answer, and refusals in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType

from gateway.errors import GatewayError
from gateway.limits.demand import Wanted, next_period
from gateway.limits.store import Rate, Taken

_FREE_SLOT = 1.0
"""Seconds to wait where nobody knows when a call ends."""
_NAMES: Mapping[str, tuple[bytes, bytes, bytes]] = MappingProxyType(
    {
        "requests": (b"x-ratelimit-limit-requests", b"x-ratelimit-remaining-requests", b"x-ratelimit-reset-requests"),
        "tokens": (b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens"),
    }
)
_SPANS: Mapping[str, str] = MappingProxyType({"day": " a day", "month": " a month", "total": ""})


def headers(wanted: Sequence[Wanted], taken: Taken, period: float) -> tuple[tuple[bytes, bytes], ...]:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`: of all limits that apply, the one that is closest to
    its end. `reset` is the time until that bucket is full again; one fills up in `period` seconds."""
    found: list[tuple[bytes, bytes]] = []
    for what, (limit, remaining, reset) in _NAMES.items():
        nearest, share = None, math.inf
        for one, left in zip(wanted, taken.left, strict=True):
            if one.what == what and left < share * one.demand.capacity:
                nearest, share = (one.demand.capacity, left), left / one.demand.capacity
        if nearest is not None:
            capacity, left = nearest
            found += (
                (limit, b"%d" % capacity),
                (remaining, b"%d" % max(0, left)),
                (reset, span((capacity - left) / capacity * period).encode()),
            )
    return tuple(found)


def span(seconds: float) -> str:
    """As OpenAI writes it: `120ms`, `1s`, `6m0s`. Rounded up."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    whole = math.ceil(seconds)
    return f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60}s"


def refusal(wanted: Wanted, wait: float, now: datetime) -> GatewayError:
    """The error for a demand that cannot be met."""
    whose = f"{wanted.scope.kind} '{wanted.scope.name}'"
    if wanted.what == "budget":
        return _over_budget(wanted, whose, now)
    if wanted.what == "concurrency":
        text = f"{whose} has as many calls under way as it may have at the same time ({wanted.demand.capacity})."
        return GatewayError("rate_limit_exceeded", _sentence(text), retry_after=_FREE_SLOT)
    limit = f"{wanted.demand.capacity} {wanted.what} per minute of {whose}"
    if math.isinf(wait):
        assert isinstance(wanted.demand, Rate)
        text = (
            f"This request may use {wanted.demand.cost} tokens, more than the limit of {limit} ever lets through: "
            "shorten the prompt or lower max_tokens."
        )
        error = GatewayError("rate_limit_exceeded", text)
        error.should_retry = False
        return error
    return GatewayError("rate_limit_exceeded", f"The limit of {limit} is reached.", retry_after=wait)


def _over_budget(wanted: Wanted, whose: str, now: datetime) -> GatewayError:
    budget = wanted.scope.budget
    assert budget is not None
    again = next_period(budget.per, now)
    amount = _dollars(budget.usd) + _SPANS[budget.per]
    until = f"; it starts again on {again:%Y-%m-%d} (UTC)" if again is not None else ""
    return GatewayError(
        "insufficient_quota",
        f"The budget of {amount} of {whose} is spent or reserved by calls under way{until}.",
        retry_after=(again - now).total_seconds() if again is not None else None,
    )


def _dollars(usd: Decimal) -> str:
    return f"${usd:.2f}" if usd == round(usd, 2) else f"${usd:f}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
