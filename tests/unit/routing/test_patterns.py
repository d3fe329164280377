"""Many expressions in one pass say the same as each by itself."""

from __future__ import annotations

import json

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.facts import Facts
from gateway.routing.patterns import Patterns, any_word
from tests.unit.building import a_call

EXPRESSIONS = [
    "a+b",
    "(?i)hello",
    "^x",
    "x$",
    "函数",
    r"\bport to\b",
    "[0-9]{3}",
    "🦀",
    "(?s)a.c",
    any_word(("迁移", "C++", "go")),
]


def said(text: str) -> Facts:
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": text}]})
    return Facts(a_call(body.encode()), frozenset(), lambda text: "other", len)


def found(text: str, expressions: list[str], **options: int) -> list[bool]:
    patterns = Patterns(**options)
    holds = [patterns.add(expression) for expression in expressions]
    patterns.compile()
    facts = said(text)
    return [hold(facts) for hold in holds]


@given(st.text(alphabet="abcxHELLO hello函数迁移🦀port to123\n+go.", max_size=60))
def test_one_pass_says_what_each_says(text: str) -> None:
    assert found(text, EXPRESSIONS) == [re2.search(e, text) is not None for e in EXPRESSIONS]


@pytest.mark.parametrize("memory", [1, 2000, 20_000])
def test_where_one_pass_has_no_room_each_is_searched(memory: int) -> None:
    expressions = [f"(a|b|{n})*x[ab]{{{n % 9 + 1}}}c{n}" for n in range(60)]
    text = "abab" * 500 + "xab" + "xabac7 xac9"
    assert found(text, expressions, memory=memory) == [re2.search(e, text) is not None for e in expressions]


def test_a_text_is_searched_once() -> None:
    patterns = Patterns()
    one, two = patterns.add("hello"), patterns.add("bye")
    patterns.compile()
    facts = said("hello")
    assert (one(facts), two(facts)) == (True, False)
    (known,) = facts.found.values()
    facts.found[patterns] = known | {2}
    assert two(facts)


def test_a_route_without_expressions_has_nothing_to_compile() -> None:
    Patterns().compile()


@pytest.mark.parametrize(
    ("words", "text", "holds"),
    [
        (("go",), "let's GO now", True),
        (("go",), "golang", False),
        (("c++",), "port it to C++ please", True),
        (("迁移",), "把迁移做完", True),
        (("port to",), "port to rust", True),
        ((".net",), "a .NET service", True),
    ],
)
def test_words(words: tuple[str, ...], text: str, holds: bool) -> None:
    assert found(text, [any_word(words)]) == [holds]
