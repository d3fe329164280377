"""The keywords and expressions of one route, searched in one pass: two hundred rules cost little more than one.

RE2's set of expressions finds all that match in linear time, but tells nobody when it runs out of memory and gives up.
So an expression that always matches is among them: if it is not found, each one is searched by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import re2

from gateway.routing.facts import Facts

MEMORY = 16 << 20


class Patterns:
    """All expressions of a route. `add` them, `compile`, then ask."""

    def __init__(self, memory: int = MEMORY) -> None:
        """`memory`: bytes for the search."""
        self._options = re2.Options()
        self._options.max_mem = memory
        self._options.log_errors = False
        self._expressions: list[str] = [""]  # always matches, see the module
        self._set: Any = None
        self._each: list[Any] = []

    def add(self, expression: str) -> Callable[[Facts], bool]:
        """Whether this expression is found in the last user message."""
        place = len(self._expressions)
        self._expressions.append(expression)
        return lambda facts: place in self._found(facts)

    def compile(self) -> None:
        """Nothing more is added."""
        if len(self._expressions) == 1:
            return
        self._set = re2.Set.SearchSet(self._options)
        for expression in self._expressions:
            self._set.Add(expression)
        try:
            self._set.Compile()
        except re2.error:  # too large for one pass
            self._set = None

    def _found(self, facts: Facts) -> frozenset[int]:
        found: frozenset[int] | None = facts.found.get(self)
        if found is None:
            found = facts.found[self] = self._search(facts.text)
        return found

    def _search(self, text: str) -> frozenset[int]:
        raw = text.encode("utf-8", "replace")
        found = (self._set.Match(raw) or ()) if self._set is not None else ()
        return frozenset(found) if 0 in found else self._one_by_one(raw.decode())

    def _one_by_one(self, text: str) -> frozenset[int]:
        if not self._each:
            self._each = [re2.compile(expression) for expression in self._expressions]
        return frozenset(place for place, expression in enumerate(self._each) if expression.search(text))


def any_word(words: tuple[str, ...]) -> str:
    """Any of the words, in any case; a word of Latin letters only as a whole word."""
    return "(?i)" + "|".join(_word(word) for word in words)


def _word(word: str) -> str:
    before = r"\b" if _latin(word[0]) else ""
    after = r"\b" if _latin(word[-1]) else ""
    return f"{before}{re2.escape(word)}{after}"


def _latin(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")
