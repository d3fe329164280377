"""Keys of the file whose behaviour this version does not have yet. A later part activates a key by deleting its row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gateway.config.paths import matches
from gateway.config.problems import KeyPath


class Inactive(NamedTuple):
    """One key without behaviour; a value in `harmless` asks for nothing that is missing."""

    pattern: tuple[str, ...]
    harmless: tuple[Any, ...] = ()


INACTIVE: tuple[Inactive, ...] = ()


def inactive_paths(values: Any) -> Iterator[KeyPath]:
    """The key paths in the file that have no behaviour yet; empty values and harmless ones do not count."""
    for row in INACTIVE:
        for path, value in matches(values, row.pattern):
            if value not in (None, "", [], {}) and value not in row.harmless:
                yield path


def activity(pattern: tuple[str, ...]) -> str:
    """For the reference: `yes`, `not yet`, or the only values of a key that already do what they say."""
    for row in INACTIVE:
        if pattern[: len(row.pattern)] == row.pattern:
            only = ", ".join(f"`{value}`" for value in row.harmless if value != "1")
            return f"only {only}" if only else "not yet"
    return "yes"
