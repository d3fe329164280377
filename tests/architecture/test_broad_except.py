"""`except Exception` swallows faults: only at a boundary that is listed here, or once in a thousand lines."""

from __future__ import annotations

import ast

from tests.architecture.tree import Source, dotted, sources

BOUNDARIES: dict[str, str] = {}
"""Path -> why a fault must not leave this file."""
LINES_PER_HANDLER = 1_000
BROAD = frozenset({"Exception", "BaseException"})


def is_broad(kind: ast.expr | None) -> bool:
    """A bare `except`, or one that names `Exception` or `BaseException`, alone or among others."""
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(k is None or dotted(k) in BROAD for k in kinds)


def swallowing(source: Source) -> list[str]:
    """Broad handlers that do not end by raising, and `suppress(Exception)`."""
    found = []
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler) and is_broad(node.type) and not isinstance(node.body[-1], ast.Raise):
            found.append(source.at(node, "broad except"))
        if isinstance(node, ast.Call) and dotted(node.func).endswith("suppress") and any(map(is_broad, node.args)):
            found.append(source.at(node, "broad suppress"))
    return found


def test_broad_handlers_are_rare() -> None:
    files = sources("gateway", "serving")
    found = [line for source in files if source.path not in BOUNDARIES for line in swallowing(source)]
    assert len(found) <= sum(source.lines for source in files) // LINES_PER_HANDLER, found


def test_every_boundary_needs_its_row() -> None:
    needed = {source.path for source in sources("gateway", "serving") if swallowing(source)}
    assert BOUNDARIES.keys() <= needed
