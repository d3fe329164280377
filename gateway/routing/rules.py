"""A route's rules, compiled at load: first match wins. Cheap conditions are asked first, expressions
run in RE2, all of a route in one pass (`patterns.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gateway.config.schema import Range, Rule, When
from gateway.routing.facts import Facts
from gateway.routing.patterns import Patterns, any_word


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of a `when`."""

    name: str
    wanted: str
    """As written, for people."""
    holds: Callable[[Facts], bool]


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One rule; all conditions must hold."""

    name: str
    to: str
    conditions: tuple[Condition, ...]

    def failing(self, facts: Facts) -> Condition | None:
        """The first condition that does not hold; None: the rule matches."""
        for condition in self.conditions:
            if not condition.holds(facts):
                return condition
        return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one rule, for `explain`."""

    rule: str
    to: str
    matched: bool
    reason: str


def compile_rules(rules: Iterable[Rule]) -> tuple[CompiledRule, ...]:
    """The rules of a route, ready to be asked."""
    patterns = Patterns()
    compiled = tuple(CompiledRule(rule.name, rule.to, tuple(_conditions(rule.when, patterns))) for rule in rules)
    patterns.compile()
    return compiled


def first_match(rules: tuple[CompiledRule, ...], facts: Facts) -> CompiledRule | None:
    """The first rule whose conditions all hold."""
    for rule in rules:
        if rule.failing(facts) is None:
            return rule
    return None


def verdicts(rules: tuple[CompiledRule, ...], facts: Facts) -> list[Verdict]:
    """Every rule's verdict, also of those that an earlier match keeps from being asked."""
    found = []
    for rule in rules:
        failing = rule.failing(facts)
        reason = "all conditions hold" if failing is None else f"{failing.name} is not {failing.wanted}"
        found.append(Verdict(rule.name, rule.to, failing is None, reason))
    return found


def _conditions(when: When, patterns: Patterns) -> Iterable[Condition]:
    """The given conditions, cheapest first."""
    for name, compile_one in _COMPILERS.items():
        value = getattr(when, "wants_json" if name == "json" else name)
        if value is not None:
            yield Condition(name, _written(value), compile_one(value, patterns))


def _written(value: Any) -> str:
    if isinstance(value, Range):
        bounds = [f"over {value.over}"] if value.over is not None else []
        return " and ".join(bounds + ([f"under {value.under}"] if value.under is not None else []))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {' or '.join(values)}" for name, values in value.items())
    return " or ".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()


def _inside(bounds: Range, number: int) -> bool:
    return (bounds.over is None or number > bounds.over) and (bounds.under is None or number < bounds.under)


def _headers(wanted: Mapping[str, tuple[str, ...]]) -> Callable[[Facts], bool]:
    pairs = [(name.lower().encode(), frozenset(v.encode() for v in values)) for name, values in wanted.items()]
    return lambda facts: all(facts.call.headers.get(name) in values for name, values in pairs)


def _metadata(wanted: Mapping[str, tuple[str, ...]]) -> Callable[[Facts], bool]:
    return lambda facts: all(_plain(facts.metadata.get(name)) in values for name, values in wanted.items())


def _plain(value: Any) -> Any:
    """As YAML would write it: metadata holds numbers and flags too."""
    return str(value).lower() if isinstance(value, bool | int | float) else value


_COMPILERS: Mapping[str, Callable[[Any, Patterns], Callable[[Facts], bool]]] = MappingProxyType(
    {
        "key": lambda names, _: lambda facts: facts.call.caller.key in names,
        "team": lambda names, _: lambda facts: facts.call.caller.team in names,
        "stream": lambda wanted, _: lambda facts: facts.call.body.stream is wanted,
        "header": lambda wanted, _: _headers(wanted),
        "tools": lambda wanted, _: lambda facts: facts.tools is wanted,
        "metadata": lambda wanted, _: _metadata(wanted),
        "json": lambda wanted, _: lambda facts: facts.json is wanted,
        "images": lambda wanted, _: lambda facts: facts.images is wanted,
        "messages": lambda bounds, _: lambda facts: _inside(bounds, len(facts.messages)),
        "prompt_tokens": lambda bounds, _: (
            lambda facts: (
                (bounds.over is None or facts.tokens_over(bounds.over))
                and (bounds.under is None or not facts.tokens_over(bounds.under - 1))
            )
        ),
        "keywords": lambda words, patterns: patterns.add(any_word(words)),
        "regex": lambda expression, patterns: patterns.add(expression),
        "task": lambda names, _: lambda facts: facts.task in names,
    }
)
"""In the order of what a condition costs."""
