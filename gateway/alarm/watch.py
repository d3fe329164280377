"""One figure under watch: whether it has fallen, whether it is well again, and since when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from gateway.alarm.detector import Detector, Sample
from gateway.alarm.observation import What

ALPHA = 1e-5
"""A watch alarms falsely once in 1 / ALPHA calls on average at most: 100,000. Ten times rarer would cost a fifth more
calls before a true alarm, which grow with the logarithm."""
RECOVERY_ALPHA = 1e-3
"""The same for "well again": to take that back costs one more alarm, so less evidence will do."""
RECENT = 512
"""Calls that are remembered, to tell when a change began."""


class Watch:
    """A figure between 0 and 1 whose mean should not fall below a bound."""

    __slots__ = ("_fall", "_recent", "_rise", "bound", "what")

    def __init__(self) -> None:
        self._fall = Detector(ALPHA)
        self._rise = Detector(RECOVERY_ALPHA)
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self.bound = 0.0
        """The last one; it stays as it was while the figure is down."""
        self.what: What | None = None
        """What its alarm was called; None: there is none."""

    def note(self, value: float, weight: float) -> None:
        """Remembers a call that there is no bound for yet."""
        self._recent.append((value, weight))

    def add(self, value: float, weight: float, bound: float) -> bool:
        """One more call: whether the figure has fallen or, while `what` is set, has risen above the bound again."""
        self._recent.append((value, weight))
        if self.what is not None:
            return self._rise.add(1 - value, weight, 1 - self.bound)
        self.bound = bound
        return bound > 0 and self._fall.add(value, weight, bound)  # below 0 nothing can fall

    @property
    def evidence(self) -> float:
        """That it is down: 0 to 1."""
        return self._fall.evidence if self.what is None else 1.0

    def level(self, calls: int) -> float | None:
        """The mean over the last calls, by weight; None without any."""
        latest = list(islice(reversed(self._recent), calls))
        weight = sum(w for _, w in latest)
        return sum(v * w for v, w in latest) / weight if weight else None

    def since(self) -> int:
        """Calls since the change that `add` told of seems to have begun; at most RECENT."""
        return self._fall.onset(self._samples()) if self.what is None else self._rise.onset(self._mirrored())

    def turn(self, what: What | None) -> None:
        """The alarm begins, under this name, or ends."""
        self.what = what
        self._fall.clear()
        self._rise.clear()

    def clear(self) -> None:
        """Forgets all calls and ends the alarm."""
        self.turn(None)
        self._recent.clear()

    def _samples(self) -> Iterator[Sample]:
        return ((value, weight, self.bound) for value, weight in reversed(self._recent))

    def _mirrored(self) -> Iterator[Sample]:
        return ((1 - value, weight, 1 - self.bound) for value, weight in reversed(self._recent))
