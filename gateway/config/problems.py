"""What is wrong with a configuration, and where: findings name a key path, a `Source` turns it into file and line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from gateway.config.runtime import Notice

KeyPath = tuple[str | int, ...]


class Finding(NamedTuple):
    """One thing that is wrong at a key path; the text never holds a value that came from the environment."""

    path: KeyPath
    message: str
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding with its place, as the user sees it."""

    file: str
    line: int | None
    path: str
    message: str
    suggestion: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        text = f"{self.message}, {self.suggestion}" if self.suggestion else self.message
        return ": ".join(part for part in (place, self.path, text) if part)


class ConfigError(Exception):
    """The configuration cannot be used; carries every problem that was found, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.file, problem.line or 0, problem.path)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Source:
    """The file as the user named it, and the line of each key path in it."""

    file: str
    lines: Mapping[KeyPath, int]

    def line(self, path: KeyPath) -> int | None:
        """The line of the path, or of its nearest ancestor that is written in the file."""
        ancestors = (path[:length] for length in range(len(path), -1, -1))
        return next((self.lines[ancestor] for ancestor in ancestors if ancestor in self.lines), None)

    def problem(self, finding: Finding) -> Problem:
        """The finding with its place."""
        line = self.line(finding.path)
        return Problem(self.file, line, self._written(finding.path), finding.message, finding.suggestion)

    def notice(self, path: KeyPath, text: str, trouble: bool = True) -> Notice:
        """Something to know about a key path that is not an error."""
        return Notice(f"{self.file}:{self.line(path)}: {self._written(path)}", text, trouble)

    def _written(self, path: KeyPath) -> str:
        """The path as text, without the index of a list that is written as its only item."""
        alone = path and isinstance(path[-1], int) and path not in self.lines
        return dotted(path[:-1] if alone else path)


def dotted(path: KeyPath) -> str:
    """`("keys", 0, "name")` as `keys[0].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """`did you mean "x"?` for the nearest known word, None where nothing is near."""
    by_folded = {name.casefold(): name for name in known}
    matches = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return did_you_mean(by_folded[matches[0]]) if matches else None


def did_you_mean(name: str) -> str:
    """The suggestion as it is told."""
    return f'did you mean "{name}"?'
