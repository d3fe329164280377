"""Rules that no request can reach: they contradict themselves, or a rule above takes every request first.

Only what can be proved counts: condition by condition, never two rules above together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gateway.config.schema import Range, Rule, When

OTHER = "other"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, 5.6.2."""


def unreachable(rules: Sequence[Rule], index: int, tasks: Collection[str]) -> str | None:
    """Why the rule at `index` can never match, and what to do; None: it may. `tasks`: every task type there is."""
    when = rules[index].when
    why = impossible(when, tasks)
    if why is not None:
        return f"can never match: {why}"
    above = next((n for n, rule in enumerate(rules[:index]) if covers(rule.when, when, tasks)), None)
    if above is None:
        return None
    return f"can never match: rules[{above}] takes every such request first; put this rule above it, or delete one"


def covers(earlier: When, later: When, tasks: Collection[str]) -> bool:
    """Every request that `later` takes, `earlier` takes as well: each of its conditions follows from one of `later`."""
    demands = {name: wanted for name in FOLLOWS if (wanted := getattr(earlier, name)) is not None}
    if _subset(tasks, demands.get("task", ())):
        del demands["task"]  # each request has one of them
    return all((given := getattr(later, name)) is not None and FOLLOWS[name](given, w) for name, w in demands.items())


def impossible(when: When, tasks: Collection[str]) -> str | None:
    """Why the conditions cannot hold together; None: they may."""
    for name, values in (when.header or {}).items():
        if not _TOKEN.fullmatch(name):
            return f'"{name}" cannot be the name of a header'
        if any(value != value.strip() or not value.isprintable() for value in values):
            return f"header {name} never arrives with white space around its value, or control characters in it"
    headers = _headers(when.header or {})
    both = next((name for name, values in headers.items() if not values), None)
    if both is not None:
        return f"header {both} is given twice, without a value in common"
    named = {value if value in tasks else OTHER for value in headers.get("x-task-type", ())}
    if named and when.task and named.isdisjoint(when.task):
        return "the header X-Task-Type decides the task, and none of its values is in `task`"
    return None


def _subset(given: Collection[str], wanted: Collection[str]) -> bool:
    return set(given) <= set(wanted)


def _words(given: Collection[str], wanted: Collection[str]) -> bool:
    """Any of the words in any case."""
    return {word.lower() for word in given} <= {word.lower() for word in wanted}


def _within(given: Range, wanted: Range) -> bool:
    low = wanted.over is None or (given.over is not None and given.over >= wanted.over)
    return low and (wanted.under is None or (given.under is not None and given.under <= wanted.under))


def _fields(given: Mapping[str, Collection[str]], wanted: Mapping[str, Collection[str]]) -> bool:
    return all(name in given and _subset(given[name], values) for name, values in wanted.items())


def _headers(given: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """By name in lower case, with the values that are left for each."""
    found: dict[str, set[str]] = {}
    for name, values in given.items():
        found[name.lower()] = found.get(name.lower(), set(values)) & set(values)
    return found


def _same(given: Any, wanted: Any) -> bool:
    return bool(given == wanted)


FOLLOWS: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {
        "task": _subset,
        "keywords": _words,
        "regex": _same,
        "prompt_tokens": _within,
        "messages": _within,
        "tools": _same,
        "images": _same,
        "wants_json": _same,
        "stream": _same,
        "header": lambda given, wanted: _fields(_headers(given), _headers(wanted)),
        "metadata": _fields,
        "key": _subset,
        "team": _subset,
    }
)
"""For each condition: whether it follows, as an earlier rule wants it, from what a later rule gives."""
