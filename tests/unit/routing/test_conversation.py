"""Which calls belong together, and how long that is remembered."""

from __future__ import annotations

import json
from typing import Any

from gateway.call import Caller
from gateway.routing.conversation import conversation_of
from gateway.routing.facts import Facts
from tests.unit.building import a_call

FIRST = {"role": "user", "content": "refactor this"}


def name(headers: dict[bytes, bytes] | None = None, key: str = "ci", **fields: Any) -> bytes:
    call = a_call(json.dumps({"model": "auto", "messages": [FIRST]} | fields).encode(), headers=headers)
    call.caller = Caller(key)
    return conversation_of(Facts(call, frozenset(), lambda text: "other", len), b"secret")


def test_a_conversation_keeps_its_name_while_it_grows() -> None:
    grown = [
        {"role": "system", "content": "s"},
        FIRST,
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "more"},
    ]
    assert name() == name(messages=grown)
    assert name() != name(messages=[{"role": "user", "content": "something else"}])


def test_two_callers_never_share_one() -> None:
    assert name(key="a") != name(key="b")
    assert name({b"x-session-id": b"1"}, key="a") != name({b"x-session-id": b"1"}, key="b")


def test_a_named_session_wins_over_the_text() -> None:
    ways: list[dict[str, Any]] = [
        {"headers": {b"x-session-id": b"s1"}},
        {"metadata": {"session_id": "s1"}},
        {"prompt_cache_key": "s1"},
        {"headers": {b"x-claude-code-session-id": b"s1"}},
    ]
    other = [{"role": "user", "content": "another beginning"}]
    for way in ways:
        assert name(**way) == name(**way, messages=other)
        assert name(**way) != name()
    assert name({b"x-session-id": b"s1"}, metadata={"session_id": "s2"}) == name({b"x-session-id": b"s1"})


def test_any_body_has_a_conversation() -> None:
    for messages in ([], [5], [{"role": 7}], [{"role": "system", "content": "x"}]):
        assert len(name(messages=messages)) == 16
