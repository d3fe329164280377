"""What the ledger says about a time, by whatever is asked for: the source of `turnout usage` and the usage pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from gateway.accounting.row import NANO
from gateway.database import Database

_DAY_MS = 86_400_000
GROUPS: Mapping[str, str] = MappingProxyType(
    {name: name for name in ("key", "team", "model", "upstream", "route", "task", "endpoint", "outcome")}
    | {"day": f"at_ms / {_DAY_MS}"}
)
"""What usage can be grouped by, and its SQL."""
_SPANS = MappingProxyType({"m": "minutes", "h": "hours", "d": "days", "w": "weeks"})
_SPAN = re.compile(r"(\d{1,6})([mhdw])")
_COUNTED = "prompt_tokens + completion_tokens > 0"
_SUMS = MappingProxyType(
    {
        "calls": "count(*)",
        "errors": "sum(CASE WHEN outcome IN ('ok', 'client_closed') THEN 0 ELSE 1 END)",
        "prompt_tokens": "sum(prompt_tokens)",
        "cached_tokens": "sum(cached_tokens)",
        "completion_tokens": "sum(completion_tokens)",
        "reasoning_tokens": "sum(reasoning_tokens)",
        "nano": "sum(cost_nano_usd)",
        "counted": f"sum(CASE WHEN {_COUNTED} THEN 1 ELSE 0 END)",
        "estimated": f"sum(CASE WHEN {_COUNTED} AND NOT reported THEN 1 ELSE 0 END)",
    }
)


class WrongQuery(ValueError):
    """The question makes no sense; the text says what would."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of the ledger."""

    by: tuple[str, ...] = ()
    """Of GROUPS; none: one line for all."""
    since: datetime | None = None
    """UTC; None: from the first call on."""
    until: datetime | None = None
    key: str | None = None
    """Only this key's calls."""


@dataclass(frozen=True, slots=True)
class Line:
    """The sums of one group."""

    group: tuple[str | None, ...]
    """In the order of `Query.by`; None: the calls have no such thing, as a team."""
    calls: int
    errors: int
    """Neither answered nor left by their callers."""
    prompt_tokens: int
    cached_tokens: int
    """Part of the prompt's."""
    completion_tokens: int
    reasoning_tokens: int
    """Part of the completion's."""
    cost_usd: Decimal
    counted: int
    """Calls with tokens."""
    estimated_share: float
    """Of these: those whose upstream reported none."""


def query(by: str, since: str, until: str = "", key: str | None = None, now: datetime | None = None) -> Query:
    """A question as people write it: `by` as "model,day"; times as `moment` takes them. Raises WrongQuery."""
    groups = tuple(dict.fromkeys(part.strip() for part in by.split(",") if part.strip()))
    unknown = [group for group in groups if group not in GROUPS]
    if unknown:
        raise WrongQuery(f"usage cannot be grouped by '{unknown[0][:40]}'; choose of {', '.join(GROUPS)}")
    now = now or datetime.now(UTC)
    return Query(groups, moment(since, now), moment(until, now), key)


def moment(text: str, now: datetime) -> datetime | None:
    """`7d`, `24h`, `2w`, `30m` before `now`; a date or a date with a time (UTC if it names no zone); empty or `all`:
    None. Raises WrongQuery."""
    if text in ("", "all"):
        return None
    try:
        if span := _SPAN.fullmatch(text):
            return now - timedelta(**{_SPANS[span[2]]: int(span[1])})
        given = datetime.fromisoformat(text)
        return given.astimezone(UTC) if given.tzinfo else given.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        wrong = f"'{text[:40]}' is no time; write 7d, 24h, 2026-11-30 or 2026-11-30T08:00"
        raise WrongQuery(wrong) from None


async def usage(database: Database, asked: Query, seconds: float = 10.0) -> list[Line]:
    """The lines of an answer: days in order, within a day the most expensive first. Raises DatabaseDown."""
    from sqlalchemy import text

    conditions, values = _conditions(asked)
    groups = [GROUPS[name] for name in asked.by]
    grouped = f" GROUP BY {', '.join(groups)}" if groups else ""
    statement = f"SELECT {', '.join([*groups, *_SUMS.values()])} FROM calls{conditions}{grouped}"
    async with database.read(seconds) as connection:
        rows = (await connection.execute(text(statement), values)).all()
    return _sorted(asked.by, (_line(asked.by, row) for row in rows if row[len(groups)]))


def _conditions(asked: Query) -> tuple[str, dict[str, Any]]:
    given = {
        "at_ms >= :since": ("since", _ms(asked.since)),
        "at_ms < :until": ("until", _ms(asked.until)),
        "key = :key": ("key", asked.key),
    }
    wanted = {sql: pair for sql, pair in given.items() if pair[1] is not None}
    return (" WHERE " + " AND ".join(wanted) if wanted else ""), dict(wanted.values())


def _ms(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1000)


def _line(by: tuple[str, ...], row: Sequence[Any]) -> Line:
    group = tuple(_named(name, value) for name, value in zip(by, row, strict=False))
    calls, errors, prompt, cached, completion, reasoning, nano, counted, estimated = map(int, row[len(by) :])
    share = estimated / counted if counted else 0.0
    return Line(group, calls, errors, prompt, cached, completion, reasoning, dollars(nano), counted, round(share, 4))


def _named(group: str, value: Any) -> str | None:
    if group == "day":
        return (date(1970, 1, 1) + timedelta(days=int(value))).isoformat()
    return None if value is None else str(value)


def dollars(nano: int) -> Decimal:
    """Nano-dollars as dollars, exactly."""
    return Decimal(nano) / NANO


def _sorted(by: tuple[str, ...], lines: Iterable[Line]) -> list[Line]:
    day = by.index("day") if "day" in by else None
    return sorted(lines, key=lambda line: ("" if day is None else line.group[day] or "", -line.cost_usd, -line.calls))


def records(asked: Query, lines: Iterable[Line]) -> list[dict[str, Any]]:
    """The lines for JSON and CSV: one flat object each."""
    return [dict(zip(asked.by, line.group, strict=True)) | figures(line) for line in lines]


def figures(line: Line) -> dict[str, Any]:
    """A line's sums by name; money as a number, exact to the nano-dollar."""
    names = ("calls", "errors", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
    counts: dict[str, Any] = {name: getattr(line, name) for name in names}
    return counts | {"cost_usd": float(line.cost_usd), "estimated_share": line.estimated_share}


def document(asked: Query, lines: Iterable[Line]) -> dict[str, Any]:
    """A whole answer for programs."""
    times = {
        name: t and t.isoformat(timespec="seconds") for name, t in (("since", asked.since), ("until", asked.until))
    }
    return {"by": list(asked.by), **times, "usage": records(asked, lines)}
