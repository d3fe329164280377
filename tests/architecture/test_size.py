"""Files and functions stay short; the bars come from the codebases this project learns from."""

from __future__ import annotations

import ast
from statistics import median, quantiles

import pytest

from tests.architecture.tree import Source, assert_none, sources

FILE_LINES = 400
FUNCTION_LINES = 80
ARCHITECTURE_LINES = 80
MEDIAN = 9
PERCENTILE_95 = 50
ENOUGH = 30
"""With fewer functions than this a percentile says nothing."""


def function_lengths(source: Source) -> list[tuple[ast.stmt, int]]:
    """Lines of each function, from `def` to its last line."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [(n, (n.end_lineno or n.lineno) - n.lineno + 1) for n in source.nodes if isinstance(n, kinds)]


def long_file(source: Source) -> list[str]:
    return [f"{source.path}: {source.lines} lines"] if source.lines >= FILE_LINES else []


def long_functions(source: Source) -> list[str]:
    return [source.at(node, f"{lines} lines") for node, lines in function_lengths(source) if lines > FUNCTION_LINES]


def over_the_bars(lengths: list[int]) -> list[str]:
    """Which of the two bars the functions as a whole miss."""
    if len(lengths) < ENOUGH:
        return []
    found = {"median": (median(lengths), MEDIAN), "95th percentile": (quantiles(lengths, n=20)[18], PERCENTILE_95)}
    return [f"{name} {value:g}, at most {bar}" for name, (value, bar) in found.items() if value > bar]


def test_files_are_short() -> None:
    assert_none(line for s in sources("gateway", "serving", "tests", "benchmarks") for line in long_file(s))


def test_the_rules_themselves_are_short() -> None:
    assert_none(f"{s.path}: {s.lines} lines" for s in sources("tests/architecture") if s.lines > ARCHITECTURE_LINES)


def test_functions_are_short() -> None:
    assert_none(line for source in sources("gateway", "serving") for line in long_functions(source))


@pytest.mark.parametrize("folders", [("gateway",), ("serving",), ("gateway", "serving")], ids="+".join)
def test_most_functions_are_very_short(folders: tuple[str, ...]) -> None:
    assert_none(over_the_bars([lines for source in sources(*folders) for _, lines in function_lengths(source)]))
