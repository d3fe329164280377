"""Keys without behaviour are told, and only where the file uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import load
from gateway.config.activity import INACTIVE, activity, inactive_paths
from gateway.config.document import parse
from gateway.config.substitute import substitute
from gateway.config.validate import known_keys

EXAMPLE = Path(__file__).with_name("design_example.yaml")


def test_every_row_names_a_key_of_the_schema():
    for row in INACTIVE:
        assert row.pattern[-1] in known_keys(tuple(0 if step == "*" else step for step in row.pattern[:-1]))


def test_each_use_in_a_file_is_told_with_its_place():
    document = parse(EXAMPLE.read_bytes(), str(EXAMPLE))
    paths = inactive_paths(substitute(document.values, {}).values)
    assert load(EXAMPLE, {}).inactive == tuple(document.source.notice(path, "not active yet") for path in paths)


@pytest.mark.parametrize("row", INACTIVE, ids=lambda row: ".".join(row.pattern))
def test_a_row_speaks_up_for_a_value_and_not_for_an_empty_one(row):
    def tree(value):
        for step in reversed(row.pattern):
            value = {"x" if step == "*" else step: value}
        return value

    path = tuple("x" if step == "*" else step for step in row.pattern)
    assert list(inactive_paths(tree("something"))) == [path]
    for harmless in (None, "", [], {}, *row.harmless):
        assert list(inactive_paths(tree(harmless))) == []


def test_the_words_of_the_reference():
    assert activity(("gateway", "port")) == "yes"
    assert activity(("gateway", "breaker", "failures")) in ("yes", "not yet")
    assert {activity(row.pattern) for row in INACTIVE if not row.harmless} <= {"not yet"}
    assert {activity(row.pattern) for row in INACTIVE if row.harmless} <= {"only `1`", "only `open`, `admin`"}
