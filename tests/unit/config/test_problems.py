"""How a problem is placed and told."""

from __future__ import annotations

import pytest

from gateway.config.problems import ConfigError, Finding, Problem, Source, dotted, nearest

SOURCE = Source("routing.yaml", {(): 1, ("models",): 3, ("models", "fast"): 4, ("keys",): 7, ("keys", 0): 8})


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("keys",), "keys"),
        (("keys", 0, "name"), "keys[0].name"),
        (("models", "kimi-k2.5"), "models.kimi-k2.5"),
    ],
)
def test_a_key_path_as_text(path, text):
    assert dotted(path) == text


@pytest.mark.parametrize(
    ("path", "line"),
    [((), 1), (("models", "fast"), 4), (("models", "fast", "model", 1), 4), (("keys", 0, "name"), 8), (("x",), 1)],
)
def test_the_line_is_that_of_the_nearest_written_ancestor(path, line):
    assert SOURCE.line(path) == line


def test_a_finding_becomes_a_problem():
    problem = SOURCE.problem(Finding(("models", "fast", "modle"), "unknown key", 'did you mean "model"?'))
    assert str(problem) == 'routing.yaml:4: models.fast.modle: unknown key, did you mean "model"?'


def test_an_index_that_is_not_written_is_not_shown():
    assert SOURCE.problem(Finding(("models", "fast", "model", 0), "wrong")).path == "models.fast.model"
    assert SOURCE.problem(Finding(("keys", 0), "wrong")).path == "keys[0]"


def test_a_notice_says_where():
    assert SOURCE.notice(("keys", 0), "off").where == "routing.yaml:8: keys[0]"


def test_a_problem_without_line_or_path():
    assert str(Problem("routing.yaml", None, "", "is empty")) == "routing.yaml: is empty"


def test_an_error_lists_its_problems_in_the_order_of_the_file():
    later, earlier = Problem("f", 9, "b", "wrong"), Problem("f", 2, "a", "wrong")
    error = ConfigError([later, earlier])
    assert error.problems == (earlier, later)
    assert str(error) == "f:2: a: wrong\nf:9: b: wrong"


def test_the_nearest_name():
    assert nearest("upstraem", ["model", "upstream"]) == 'did you mean "upstream"?'
    assert nearest("FAST", ["fast", "quality"]) == 'did you mean "fast"?'
    assert nearest("zzz", ["fast"]) is None
