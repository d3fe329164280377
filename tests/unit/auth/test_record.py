"""What a key is told as, to programs and to the stages behind."""

from __future__ import annotations

import json
from decimal import Decimal

from gateway.auth.record import KeyRecord, Secret, moment, plain
from gateway.call import Caller
from gateway.config.runtime import Budget, Limit
from tests.unit.auth.keys import DAY, START

SECRET = Secret(b"digest", "sk-turnout-1a2b3c4d", START, START + DAY)
KEY = KeyRecord(
    "ci",
    "core",
    ("auto",),
    Limit(60),
    Budget(Decimal("50.5"), "day"),
    {"env": "dev"},
    START,
    START + DAY,
    None,
    (SECRET,),
)


def test_its_caller() -> None:
    caller = KEY.caller()
    assert caller == Caller(
        "ci", "core", frozenset({"auto"}), Limit(60), Budget(Decimal("50.5"), "day"), (("env", "dev"),)
    )
    assert hash(caller)
    assert KeyRecord("all").caller() == Caller("all")


def test_its_states() -> None:
    assert [KEY.state(START + ms) for ms in (0, DAY - 1, DAY)] == ["live", "live", "expired"]
    assert KeyRecord("x", revoked_ms=START).state(0) == "revoked"
    assert KeyRecord("x").state(1 << 60) == "live"


def test_its_document() -> None:
    document = KEY.document(START)
    assert json.loads(json.dumps(document)) == document
    assert document["budget"] == {"usd": 50.5, "per": "day"}
    assert document["limits"] == {"requests_per_minute": 60, "tokens_per_minute": None, "concurrency": None}
    assert document["expires"] == "2027-01-16T08:00:00Z"
    assert document["revoked"] is None
    (secret,) = document["secrets"]
    assert secret == {
        "prefix": "sk-turnout-1a2b3c4d...",
        "created": "2027-01-15T08:00:00Z",
        "until": "2027-01-16T08:00:00Z",
    }
    assert "digest" not in repr(KEY).replace("digest=", "")


def test_times() -> None:
    assert moment(None) is None
    assert moment(START + 999) == "2027-01-15T08:00:00Z"
    assert plain(START) == "2027-01-15 08:00 UTC"
