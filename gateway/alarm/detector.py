"""Sequential detection of a mean that fell: e-detectors (Shin, Ramdas, Rinaldo 2023, arXiv:2203.03532)."""

from __future__ import annotations

from collections.abc import Iterable
from math import log

FRACTIONS = (0.06, 0.13, 0.27, 0.52, 0.95)
"""Bets, as shares of the largest that can never lose everything: small ones find small changes, large ones large."""

Sample = tuple[float, float, float]
"""Value and weight, both 0 to 1, and the bound that the value's mean should not fall below."""


def stake(value: float, weight: float, bound: float) -> float:
    """What a bet of 1 on "the mean is below the bound" wins with this sample: at least -1, at most 0 on average if the
    mean is not below it."""
    return weight * (bound - value) / (1 - bound)


class Detector:
    """Shiryaev-Roberts e-detector, a mixture over bets: as long as each sample's mean, given those before it, is not
    below its bound, it takes 1 / alpha samples on average, or more, until it alarms."""

    __slots__ = ("_limit", "_sums")

    def __init__(self, alpha: float) -> None:
        self._limit = len(FRACTIONS) / alpha
        self._sums = [0.0] * len(FRACTIONS)

    def add(self, value: float, weight: float, bound: float) -> bool:
        """Whether it alarms. The bound (below 1) may change from sample to sample, but not look at the sample."""
        won = stake(value, weight, bound)
        self._sums = sums = [(1.0 + s) * (1.0 + f * won) for s, f in zip(self._sums, FRACTIONS, strict=True)]
        return sum(sums) >= self._limit

    @property
    def evidence(self) -> float:
        """How near the alarm is: 0 (no sign) to 1 (it alarms), on a logarithmic scale."""
        mean = sum(self._sums) / len(FRACTIONS)
        return min(log(mean) / log(self._limit / len(FRACTIONS)), 1.0) if mean > 1 else 0.0

    def clear(self) -> None:
        self._sums = [0.0] * len(FRACTIONS)

    def onset(self, samples: Iterable[Sample]) -> int:
        """How many of the samples, the latest first, seem to come after the change: those that the best bet won most
        with."""
        fraction = FRACTIONS[max(range(len(FRACTIONS)), key=self._sums.__getitem__)]
        best = total = 0.0
        since = 0
        for count, each in enumerate(samples, 1):
            total += log(1.0 + fraction * stake(*each))
            if total > best:
                best, since = total, count
        return since
