"""Which texts are nearly the same: by the share of the four-character pieces that they have in common."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

NEAR = 0.6
"""Pieces in common divided by all pieces, from which on two texts are nearly the same."""
LOOKED_AT = 400
"""Letters of the beginning."""


def letters(text: str) -> str:
    """The letters and digits alone, in lower case."""
    return re.sub(r"[\W_]+", "", text.lower())


def pieces(text: str) -> frozenset[str]:
    """Every four letters in a row; all of them where there are fewer."""
    text = letters(text)[:LOOKED_AT]
    return frozenset(text[i : i + 4] for i in range(max(1, len(text) - 3))) if text else frozenset()


def unlike(rows: list[dict[str, Any]], held_out: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows whose text is nearly none of the held-out ones. Shows nobody which."""
    known = [pieces(row["text"]) for row in held_out]
    places: dict[str, list[int]] = defaultdict(list)
    for i, found in enumerate(known):
        for piece in found:
            places[piece].append(i)
    return [row for row in rows if nearest(pieces(row["text"]), known, places) < NEAR]


def nearest(found: frozenset[str], known: list[frozenset[str]], places: dict[str, list[int]]) -> float:
    """The highest similarity to any of the known texts, 0 to 1."""
    shared = Counter(i for piece in found for i in places.get(piece, ()))
    return max((n / (len(found) + len(known[i]) - n) for i, n in shared.items()), default=0.0)
