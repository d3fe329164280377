"""What a key is to be, as the command line or the admin API asks for it: checked by the rules of `routing.yaml`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from gateway.auth.record import KeyRecord, KeyRefused
from gateway.call import Caller
from gateway.config import schema
from gateway.config.fields import Listed, Name, Section
from gateway.config.problems import dotted, nearest
from gateway.config.runtime import Budget, Limit, Runtime
from gateway.config.validate import in_words

_SPAN = re.compile(r"(\d{1,6})([mhdw])")
_SPAN_MS = MappingProxyType({"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000})
_FORMS = "write 30m, 24h, 30d, 4w"
_LATEST_MS = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp() * 1000)
"""Later times cannot be written."""
_LONGEST_OVERLAP_MS = 366 * 86_400_000


class NewKey(Section):
    """The fields that a new key may be given."""

    name: Name
    team: Name | None = None
    models: Listed | None = None
    limits: schema.Limit | None = None
    budget: schema.Budget | None = None
    expires: str | None = None
    metadata: dict[
        Annotated[str, StringConstraints(min_length=1, max_length=64)],
        Annotated[str, StringConstraints(max_length=512)],
    ] = Field(default_factory=dict, max_length=16)


def new_key(values: Any, runtime: Runtime, now_ms: int) -> KeyRecord:
    """The key that `values` (the fields of NewKey) ask for. Raises KeyRefused."""
    try:
        asked = NewKey.model_validate(values)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False, include_input=False)[0]) from None
    _check_names(asked, runtime)
    return KeyRecord(
        name=asked.name,
        team=asked.team,
        models=asked.models,
        limits=None if asked.limits is None else Limit(**dict(asked.limits)),
        budget=None if asked.budget is None else Budget(Decimal(str(asked.budget.usd)), asked.budget.per),
        metadata=asked.metadata,
        created_ms=now_ms,
        expires_ms=None if asked.expires is None else _expiry(asked.expires, now_ms),
    )


def _refusal(error: ErrorDetails) -> KeyRefused:
    path = tuple(part for part in error["loc"] if part != "[key]")
    text = in_words(error)
    if error["type"] == "extra_forbidden":
        sections: dict[str, type[Section]] = {"limits": schema.Limit, "budget": schema.Budget}
        fields = list(sections.get(str(path[0]), NewKey).model_fields)
        text += f", {nearest(str(path[-1]), fields) or 'known are ' + ', '.join(fields)}"
    elif path[:1] == ("metadata",):
        text = "takes at most 16 pairs of text, names of up to 64 characters, values of up to 512"
    return KeyRefused("wrong", f"{dotted(path) or 'the key'}: {text}", dotted(path))


def _check_names(asked: NewKey, runtime: Runtime) -> None:
    if asked.name == Caller().key:
        raise KeyRefused("wrong", f"name: '{asked.name}' is what callers without a key are called", "name")
    if any(key.name == asked.name for key in runtime.keys):
        raise KeyRefused("taken", f"name: the configuration file has a key '{asked.name}'", "name")
    known = [*runtime.routes, *runtime.models]
    for name in asked.models or ():
        if name not in known:
            near = nearest(name, known) or f"there are {', '.join(known[:20])}"
            raise KeyRefused("wrong", f"models: no route or model is called '{name[:100]}', {near}", "models")


def _expiry(text: str, now_ms: int) -> int:
    """`30d` from now, a date (its beginning) or a date with a time, UTC where no zone is named."""
    ms = _moment(text.strip(), now_ms)
    if ms is None:
        raise KeyRefused(
            "wrong", f"expires: '{text[:40]}' is no time; {_FORMS}, 2027-01-31 or 2027-01-31T08:00", "expires"
        )
    if ms <= now_ms:
        raise KeyRefused("wrong", f"expires: '{text[:40]}' is not in the future", "expires")
    if ms > _LATEST_MS:
        raise KeyRefused("wrong", f"expires: '{text[:40]}' is too far away; leave it out for never", "expires")
    return ms


def _moment(text: str, now_ms: int) -> int | None:
    if match := _SPAN.fullmatch(text):
        return now_ms + int(match[1]) * _SPAN_MS[match[2]]
    try:
        given = datetime.fromisoformat(text)
        return int((given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def overlap_ms(text: str) -> int:
    """How long an old secret lasts beside a new one: `24h`, `7d`, or 0. Raises KeyRefused."""
    if text.strip() == "0":
        return 0
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise KeyRefused("wrong", f"overlap: '{text[:40]}' is no time span; {_FORMS}, or 0 for none", "overlap")
    ms = int(match[1]) * _SPAN_MS[match[2]]
    if ms > _LONGEST_OVERLAP_MS:
        raise KeyRefused("wrong", f"overlap: '{text[:40]}' is more than a year", "overlap")
    return ms
