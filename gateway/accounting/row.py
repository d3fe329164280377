"""One finished call as a row of the ledger: what the journal's lines and the table `calls` hold."""

from __future__ import annotations

import time
from decimal import ROUND_HALF_EVEN, Decimal

from msgspec import Struct

from gateway.call import Call, Tried

NANO = 1_000_000_000
"""Money is kept in whole nano-dollars."""
_MOST = (1 << 63) - 1
"""What a column of whole numbers holds."""


class Try(Struct, frozen=True):
    """One upstream call."""

    model: str
    upstream: str
    cause: str
    """Why it failed; empty: it answered."""
    seconds: float
    """Until the next one began, or the call ended."""


class Row(Struct, frozen=True, tag="call"):
    """The columns of `calls`, in their order there."""

    id: str
    """This row's own; the same row may arrive twice."""
    at_ms: int
    """When the call came: milliseconds since 1970, UTC."""
    request_id: str
    """The caller's own where it sent one, so not unique."""
    endpoint: str
    key: str
    team: str | None
    route: str | None
    rule: str | None
    experiment: str | None
    arm: str | None
    model: str | None
    """The one that answered, else the last that was tried."""
    upstream: str | None
    task: str | None
    outcome: str
    probability: float | None
    attempts: int
    tried: list[Try]
    stream: bool
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cost_nano_usd: int
    reported: bool
    """False: the tokens are estimated."""
    total_ms: float
    first_token_ms: float | None
    own_ms: float
    """The gateway's own time, without waiting for upstreams."""
    status: int
    drafts: int | None = None
    """Speculations; None: the engine told of none. The acceptance length is 1 + accepted / drafts."""
    accepted: int | None = None
    draft_tokens: int | None = None
    answer_kind: str | None = None
    """`text`, `tool` or `json`, where there were drafts."""


class Content(Struct, frozen=True, tag="content"):
    """The columns of `contents`: the redacted text of a sampled call."""

    id: str
    """The row's in `calls`."""
    at_ms: int
    prompt: str


def row_of(call: Call, row_id: str, now: float) -> Row:
    """The row of a call that has ended at `now` (by `clock.now`)."""
    plan, usage, split = call.plan, call.usage, call.plan.split if call.plan else None
    took = now - call.arrived
    model, upstream = _served_by(call)
    first = call.first_token
    return Row(
        row_id,
        int((time.time() - took) * 1000),
        call.id,
        call.endpoint.name,
        call.caller.key,
        call.caller.team,
        plan.route if plan else None,
        plan.rule if plan else None,
        split.experiment if split else None,
        split.arm if split else None,
        model,
        upstream,
        plan.task if plan else None,
        call.outcome,
        split.probability if split else None,
        len(call.tried),
        _tries(call.tried, now),
        call.body.stream,
        usage.prompt,
        usage.cached,
        usage.completion,
        usage.reasoning,
        nano(call.cost) if call.cost else 0,
        usage.reported,
        round(took * 1000, 3),
        None if first is None else round((first - call.arrived) * 1000, 3),
        round(max(0.0, took - call.waited) * 1000, 3),
        call.status,
        *_speculation(call),
    )


def _speculation(call: Call) -> tuple[int, int, int, str] | tuple[()]:
    drafted = call.drafted
    return () if drafted is None else (drafted.steps, drafted.accepted, drafted.draft_tokens, call.kind)


def nano(usd: Decimal) -> int:
    """Dollars in nano-dollars, to the nearest."""
    return min(_MOST, int((usd * NANO).to_integral_value(ROUND_HALF_EVEN)))


def _served_by(call: Call) -> tuple[str | None, str | None]:
    if call.answered is not None:
        return call.answered.model.name, call.answered.model.upstream.name
    return (call.tried[-1].model, call.tried[-1].upstream) if call.tried else (None, None)


def _tries(tried: list[Tried], now: float) -> list[Try]:
    if len(tried) == 1:  # nearly always
        only = tried[0]
        return [Try(only.model, only.upstream, only.cause, round(now - only.started, 6))]
    ends = [*(t.started for t in tried[1:]), now]
    return [Try(t.model, t.upstream, t.cause, round(end - t.started, 6)) for t, end in zip(tried, ends, strict=False)]
