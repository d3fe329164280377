"""Key paths with `*` for any key, as the tables of this package write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.config.problems import KeyPath


def matches(tree: Any, pattern: tuple[str, ...], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every (path, value) in the tree that the pattern names, e.g. `("upstreams", "*", "api_key")`."""
    if not pattern:
        yield path, tree
        return
    head, rest = pattern[0], pattern[1:]
    for key, value in children(tree):
        if head in ("*", key):
            yield from matches(value, rest, (*path, key))


def children(tree: Any) -> Iterator[tuple[str | int, Any]]:
    """Keys and values of a mapping, indexes and values of a list, nothing of anything else."""
    if isinstance(tree, dict):
        yield from tree.items()
    elif isinstance(tree, list):
        yield from enumerate(tree)


def parent(tree: Any, path: KeyPath) -> Any:
    """The container of the path's last step, None where the tree does not reach that far."""
    for key in path[:-1]:
        tree = dict(children(tree)).get(key)
    return tree


def remove(tree: Any, path: KeyPath) -> None:
    """Take one key out of a mapping; a path that ends in a list's index takes the whole list, so that indexes hold."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    container = parent(tree, path)
    if path and isinstance(container, dict):
        container.pop(str(path[-1]), None)
