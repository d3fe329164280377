"""What a new key may be asked to be, and what it is told where it may not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.auth.asked import new_key, overlap_ms
from gateway.auth.record import KeyRecord, KeyRefused
from gateway.config.runtime import Budget, Limit, StaticKey
from tests.unit.auth.keys import DAY, START
from tests.unit.building import a_model, a_runtime

RUNTIME = a_runtime(a_model("m0"), a_model("quality"), keys=(StaticKey("static", "sk"),))


def made(**fields: Any) -> KeyRecord:
    return new_key({"name": "ci", **fields}, RUNTIME, START)


def test_all_that_a_key_can_have() -> None:
    key = made(
        team="core",
        models=["auto", "m0"],
        limits={"tokens_per_minute": "2M", "concurrency": "4"},
        budget={"usd": "50.10", "per": "day"},
        expires="30d",
        metadata={"env": "dev"},
    )
    assert key == KeyRecord(
        "ci",
        "core",
        ("auto", "m0"),
        Limit(None, 2_000_000, 4),
        Budget(Decimal("50.1"), "day"),
        {"env": "dev"},
        START,
        START + 30 * DAY,
    )
    assert made() == KeyRecord("ci", created_ms=START)
    assert made(models="auto", team=None).models == ("auto",)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30m", START + 1_800_000),
        ("2w", START + 14 * DAY),
        ("2027-01-16", START + DAY - 8 * 3_600_000),
        ("2027-01-16T08:00", START + DAY),
        ("2027-01-16T09:00+01:00", START + DAY),
        ("2027-01-16T08:00:00Z", START + DAY),
    ],
)
def test_expiry(text: str, ms: int) -> None:
    assert made(expires=text).expires_ms == ms


@pytest.mark.parametrize(
    ("fields", "reason", "words"),
    [
        ({"name": "a b"}, "wrong", "name: must be 1 to 128 printable"),
        ({"name": ""}, "wrong", "name: must be 1 to 128 printable"),
        ({"name": 5}, "wrong", "name: must be text"),
        ({"name": None}, "wrong", "name: is required"),
        ({"name": "anonymous"}, "wrong", "callers without a key"),
        ({"name": "static"}, "taken", "the configuration file has a key 'static'"),
        ({"models": ["qualty"]}, "wrong", "models: no route or model is called 'qualty', did you mean \"quality\"?"),
        ({"models": ["xyz"]}, "wrong", "there are auto, m0, quality"),
        ({"models": []}, "wrong", "models: must not be empty"),
        ({"limits": {"requests_per_minute": 0}}, "wrong", "limits.requests_per_minute: must be at least 1"),
        ({"limits": {"tokens_per_minute": "10000000G"}}, "wrong", "must be at most 9007199254740992"),
        ({"limits": {"requests": 1}}, "wrong", "limits.requests: unknown key, known are requests_per_minute"),
        ({"limits": 5}, "wrong", "limits: must be a mapping"),
        ({"budget": {"usd": 0}}, "wrong", "budget.usd: must be more than 0"),
        ({"budget": {"usd": "x"}}, "wrong", "budget.usd: must be a number"),
        ({"budget": {"usd": 1, "per": "week"}}, "wrong", "budget.per: must be 'day', 'month' or 'total'"),
        ({"budget": {}}, "wrong", "budget.usd: is required"),
        ({"expires": "soon"}, "wrong", "'soon' is no time; write 30m, 24h, 30d, 4w, 2027-01-31"),
        ({"expires": "99999999-01-01"}, "wrong", "is no time"),
        ({"expires": "9999-99-99"}, "wrong", "is no time"),
        ({"expires": "2027-01-15"}, "wrong", "is not in the future"),
        ({"expires": "0d"}, "wrong", "is not in the future"),
        ({"expires": "999999w"}, "wrong", "is too far away; leave it out for never"),
        ({"expires": "9999-12-31T23:59-12:00"}, "wrong", "is too far away; leave it out for never"),
        ({"metadata": {"a": 5}}, "wrong", "takes at most 16 pairs"),
        ({"metadata": {"": "x"}}, "wrong", "takes at most 16 pairs"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "wrong", "takes at most 16 pairs"),
        ({"metadata": {"a": "x" * 513}}, "wrong", "takes at most 16 pairs"),
        ({"key": "sk-mine"}, "wrong", "key: unknown key"),
        ({"team": "a b"}, "wrong", "team: must be 1 to 128 printable"),
        ({"teem": "a"}, "wrong", 'teem: unknown key, did you mean "team"?'),
    ],
)
def test_what_is_refused(fields: dict[str, Any], reason: str, words: str) -> None:
    with pytest.raises(KeyRefused) as refused:
        made(**fields)
    assert refused.value.reason == reason
    assert words in str(refused.value)
    assert refused.value.field.split(".")[0] in fields


@pytest.mark.parametrize("values", [None, [], "ci", 5])
def test_what_is_no_mapping(values: Any) -> None:
    with pytest.raises(KeyRefused, match="the key: must be a mapping"):
        new_key(values, RUNTIME, START)


def test_overlaps() -> None:
    assert [overlap_ms(text) for text in ("0", "30m", "24h", " 7d ")] == [0, 1_800_000, DAY, 7 * DAY]
    assert overlap_ms("366d") == 366 * DAY
    for text in ("", "24", "-1h", "1y", "2027-01-16", "367d", "999999w"):
        with pytest.raises(KeyRefused, match="overlap"):
            overlap_ms(text)
