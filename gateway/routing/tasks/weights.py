"""The learned part of the task classifier, as `training/tasks/train.py` writes it into weights.bin (MessagePack)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from math import exp, sqrt
from pathlib import Path

import msgspec

from gateway.routing.tasks.features import Lexicon

FILE = Path(__file__).with_name("weights.bin")
LANE = 24
"""Bits for each task in a packed row: a sum of 65,000 rows still fits."""
LANE_MASK = (1 << LANE) - 1
ZERO = 128
"""The byte that stands for weight 0."""


class Stored(msgspec.Struct, frozen=True):
    """What the file holds."""

    digest: str
    """Of all that the weights were made from."""
    tasks: tuple[str, ...]
    bias: tuple[float, ...]
    scale: float
    """Weight of one step of a byte."""
    threshold: float
    """Below this probability the answer is `other`."""
    lexicon: dict[str, str]
    rows: dict[str, bytes]
    """Feature -> one byte for each task, and one for its rarity."""


class Weights:
    """Scores for sets of features; everything is unpacked once."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.tasks = stored.tasks
        count = len(stored.tasks)
        self.lexicon = Lexicon(stored.lexicon)
        self._bias = stored.bias
        self._shifts = tuple(LANE * i for i in range(count))
        self._rows = {feature: _packed(row[:count]) for feature, row in stored.rows.items()}

    @classmethod
    def load(cls) -> Weights:
        """The weights that the gateway ships. Takes some 25 ms."""
        return cls(msgspec.msgpack.decode(FILE.read_bytes(), type=Stored))

    @cached_property
    def rarity(self) -> dict[str, int]:
        """Feature -> how rare it is, 0 to 255; features that are not in it are rarer still."""
        return {feature: row[-1] for feature, row in self.stored.rows.items()}

    def probabilities(self, features: Iterable[str]) -> list[float]:
        """For each task; they sum up to 1."""
        # One addition of a long integer adds the weights of all tasks at once.
        rows = [row for row in map(self._rows.get, features) if row is not None]
        total, count = sum(rows), len(rows)
        step = self.stored.scale / sqrt(count) if count else 0.0
        scores = [
            bias + step * ((total >> shift & LANE_MASK) - ZERO * count)
            for bias, shift in zip(self._bias, self._shifts, strict=True)
        ]
        top = max(scores)
        powers = [exp(score - top) for score in scores]
        whole = sum(powers)
        return [power / whole for power in powers]


def _packed(row: bytes) -> int:
    """Each byte in a lane of its own."""
    wide = bytearray(len(row) * LANE // 8)
    wide[:: LANE // 8] = row
    return int.from_bytes(wide, "little")
