"""Patterns over the tree of a file."""

from __future__ import annotations

import pytest

from gateway.config.paths import children, matches, parent, remove

TREE = {"keys": [{"key": "a"}, {"key": "b"}, 7], "up": {"x": {"key": "c"}, "y": {}}, "text": "abc"}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (("up", "*", "key"), [(("up", "x", "key"), "c")]),
        (("keys", "*", "key"), [(("keys", 0, "key"), "a"), (("keys", 1, "key"), "b")]),
        (("text", "*"), []),
        (("none",), []),
        ((), [((), TREE)]),
    ],
)
def test_matches(pattern, found):
    assert list(matches(TREE, pattern)) == found


def test_a_scalar_has_no_children():
    assert list(children("abc")) == []


def test_the_parent_of_a_path():
    assert parent(TREE, ("keys", 0, "key")) == {"key": "a"}
    assert parent(TREE, ("text", "a", "b")) is None


def test_remove_takes_a_key_of_a_mapping():
    tree = {"a": {"b": 1, "c": 2}}
    remove(tree, ("a", "b"))
    assert tree == {"a": {"c": 2}}


def test_remove_takes_a_list_as_a_whole_so_that_indexes_hold():
    tree = {"a": {"b": [1, 2]}}
    remove(tree, ("a", "b", 0))
    assert tree == {"a": {}}


@pytest.mark.parametrize("path", [(), ("x",), ("a", "x", "y"), (0,)])
def test_remove_of_nothing_changes_nothing(path):
    tree = {"a": {"b": 1}}
    remove(tree, path)
    assert tree == {"a": {"b": 1}}
