"""The project's files as the architecture tests see them; each rule is a function that returns what is wrong."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Source:
    """One Python file; `path` is relative to the project's root, with slashes."""

    path: str
    text: str

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    def at(self, node: ast.stmt | ast.expr | ast.excepthandler, text: str) -> str:
        return f"{self.path}:{node.lineno}: {text}"


@cache
def tracked() -> tuple[str, ...]:
    """Every file that is, or is about to be, in the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True).split("\0")
    return tuple(sorted({name for name in listed if (ROOT / name).is_file()}))


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    names = [name for name in tracked() if name.endswith(".py") and within(name, folders, "/")]
    return tuple(Source(name, (ROOT / name).read_text()) for name in names)


def imports(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    """Each imported name in full, `from a.b import c` as `a.b.c`; relative imports are resolved."""
    folders = source.path.split("/")
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module, level = (node.module, node.level) if isinstance(node, ast.ImportFrom) else (None, 0)
            start = [*(folders[:-level] if level else ()), *([module] if module else ())]
            yield from ((node, ".".join([*start, alias.name])) for alias in node.names)


def dotted(node: ast.AST) -> str:
    """`a.b.c` for an attribute chain, the empty string for anything else."""
    if isinstance(node, ast.Attribute):
        start = dotted(node.value)
        return start and f"{start}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def within(name: str, starts: Iterable[str], separator: str = ".") -> bool:
    """`name` is one of `starts` or lies below one."""
    return any((name + separator).startswith(start + separator) for start in starts)


def assert_none(findings: Iterable[str]) -> None:
    """Fails with every finding on a line of its own."""
    if found := "\n".join(findings):
        pytest.fail(found, pytrace=False)
