"""The acceptance that a checkpoint began with: what later calls are held against."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, zip_longest
from math import sqrt
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from gateway.alarm.observation import Observation

BASELINE_CALLS = 200
"""Calls until a baseline is final: with a spread of 0.2 between calls it is then known to 0.014."""
USABLE_CALLS = 50
"""Calls until it serves for the time being."""
FULL_WEIGHT = 8
"""Draft tokens (or steps) from which a call counts fully; one with fewer counts in proportion."""
ERRORS = 3.0
"""At least so many standard errors of the baseline are tolerated, however small `drift` is."""

Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]


def sample(good: int, total: int) -> tuple[float, float]:
    """Share of good ones (0 to 1, whatever an engine claims) and the weight of the call."""
    return min(max(good / total, 0.0), 1.0), min(total / FULL_WEIGHT, 1.0)


def positions(histogram: Sequence[int]) -> tuple[float, ...]:
    """Histogram of accepted tokens per step -> share of steps that accepted at least one, two, ... tokens."""
    steps = sum(histogram)
    return tuple(1 - below / steps for below in accumulate(histogram[:-1])) if steps else ()


class Baseline(Struct, frozen=True):
    """Acceptance of one kind of answer from one checkpoint, over its first calls."""

    kind: str
    calls: Count = 0
    steps: Count = 0
    draft_tokens: Count = 0
    accepted: Count = 0
    histogram: tuple[Count, ...] = ()
    rate: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Mean of the calls' acceptance rates, by weight: not `accepted / draft_tokens`, which long answers rule."""
    weight: Amount = 0.0
    """Sum of the calls' weights."""
    squares: Amount = 0.0
    """Sum of weighted squared differences from `rate`."""

    @property
    def usable(self) -> bool:
        return self.calls >= USABLE_CALLS

    @property
    def final(self) -> bool:
        return self.calls >= BASELINE_CALLS

    @property
    def per_position(self) -> tuple[float, ...]:
        """Share of steps that accepted at least one, two, ... tokens; empty without a histogram."""
        return positions(self.histogram)

    @property
    def spread(self) -> float:
        """Standard deviation of the calls' rates."""
        return sqrt(self.squares / self.weight) if self.weight else 0.0

    def bound(self, drift: float) -> float:
        """The lowest mean rate that is still tolerated, 0 to 1."""
        error = self.spread / sqrt(self.weight) if self.weight else 0.0
        return max(min((1 - drift) * self.rate, self.rate - ERRORS * error), 0.0)

    def plus(self, seen: Observation) -> Baseline:
        """With one more call, which must have draft tokens (D. H. D. West 1979: a weighted mean and its spread)."""
        rate, weight = sample(seen.accepted, seen.draft_tokens)
        total = self.weight + weight
        mean = self.rate + (rate - self.rate) * weight / total
        return replace(
            self,
            calls=self.calls + 1,
            steps=self.steps + seen.steps,
            draft_tokens=self.draft_tokens + seen.draft_tokens,
            accepted=self.accepted + seen.accepted,
            histogram=tuple(a + b for a, b in zip_longest(self.histogram, seen.histogram, fillvalue=0)),
            rate=min(max(mean, 0.0), 1.0),
            weight=total,
            squares=self.squares + weight * (rate - self.rate) * (rate - mean),
        )

    def to_json(self) -> str:
        """A JSON object, for `from_json`."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Baseline:
        """What `to_json` wrote; ValueError if it is something else."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise ValueError(f"a stored baseline of speculation cannot be read ({error}): delete it") from error
