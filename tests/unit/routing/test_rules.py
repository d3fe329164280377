"""Rules: each condition, all that are given, first match wins."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.call import Caller
from gateway.config.schema import Rule
from gateway.routing.facts import Facts
from gateway.routing.rules import compile_rules, first_match, verdicts
from tests.unit.building import a_call


def facts(text: str = "hello", headers: dict[bytes, bytes] | None = None, **fields: Any) -> Facts:
    body = {"model": "auto", "messages": [{"role": "user", "content": text}]} | fields
    call = a_call(json.dumps(body).encode(), headers=headers)
    call.caller = Caller("ci", "platform")
    return Facts(call, frozenset({"refactor", "other"}), lambda t: "refactor" if "tidy" in t else "other", len)


def matches(when: dict[str, Any], found: Facts) -> bool:
    rule = Rule.model_validate({"name": "r", "to": "m", "when": when})
    return first_match(compile_rules([rule]), found) is not None


@pytest.mark.parametrize(
    ("when", "yes", "no"),
    [
        ({"task": "refactor"}, facts("tidy this"), facts("hello")),
        ({"keywords": ["migrate", "迁移"]}, facts("Please MIGRATE it"), facts("immigrated")),
        ({"keywords": ["migrate", "迁移"]}, facts("把项目迁移到新框架"), facts("项目")),
        ({"keywords": ["c++"]}, facts("in C++ please"), facts("in c")),
        ({"regex": r"(?i)error:\s+\d+"}, facts("Error:  42"), facts("error: x")),
        ({"prompt_tokens": {"over": 200}}, facts("x" * 300), facts("x")),
        ({"prompt_tokens": {"under": 200}}, facts("x"), facts("x" * 300)),
        ({"messages": {"over": 1, "under": 4}}, facts(messages=[{}, {}]), facts(messages=[{}])),
        ({"tools": True}, facts(tools=[{}]), facts()),
        ({"tools": False}, facts(), facts(tools=[{}])),
        ({"json": True}, facts(response_format={"type": "json_object"}), facts()),
        ({"stream": True}, facts(stream=True), facts(stream=False)),
        ({"header": {"X-Env": ["a", "b"]}}, facts(headers={b"x-env": b"b"}), facts(headers={b"x-env": b"c"})),
        ({"metadata": {"env": "prod"}}, facts(metadata={"env": "prod"}), facts(metadata={"env": "test"})),
        ({"metadata": {"n": "5", "on": "true"}}, facts(metadata={"n": 5, "on": True}), facts(metadata={"n": 5})),
        ({"key": "ci"}, facts(), None),
        ({"key": "other"}, None, facts()),
        ({"team": "platform", "stream": True}, facts(stream=True), facts()),
    ],
)
def test_conditions(when: dict[str, Any], yes: Facts | None, no: Facts | None) -> None:
    assert yes is None or matches(when, yes)
    assert no is None or not matches(when, no)


def test_the_first_match_wins_and_every_verdict_is_told() -> None:
    rules = compile_rules(
        Rule.model_validate(rule)
        for rule in (
            {"name": "long", "when": {"prompt_tokens": {"over": 10000}}, "to": "big"},
            {"name": "words", "when": {"keywords": ["hello"]}, "to": "small"},
            {"name": "all", "when": {"team": ["platform"]}, "to": "other"},
        )
    )
    match = first_match(rules, facts())
    assert match is not None
    assert (match.name, match.to) == ("words", "small")
    told = verdicts(rules, facts())
    assert [(v.rule, v.matched) for v in told] == [("long", False), ("words", True), ("all", True)]
    assert told[0].reason == "prompt_tokens is not over 10000"


def test_cheap_conditions_are_asked_first() -> None:
    (rule,) = compile_rules(
        [Rule.model_validate({"name": "r", "to": "m", "when": {"task": "refactor", "regex": "x", "key": "nobody"}})]
    )
    assert [c.name for c in rule.conditions] == ["key", "regex", "task"]
    found = facts()
    assert rule.failing(found) is rule.conditions[0]
    assert "text" not in vars(found)
