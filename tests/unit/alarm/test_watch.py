"""One figure under watch: it falls, it is well again, it is forgotten; what it remembers is bounded."""

from __future__ import annotations

import pytest

from gateway.alarm.watch import RECENT, Watch


def fallen(watch: Watch, value: float, bound: float, most: int = 500) -> int:
    """Calls until it changes sides."""
    return next(n for n in range(1, most) if watch.add(value, 1.0, bound))


def test_it_falls_and_rises_again() -> None:
    watch = Watch()
    assert not any(watch.add(0.9, 1.0, 0.6) for _ in range(300))
    assert watch.level(50) == pytest.approx(0.9)
    calls = fallen(watch, 0.2, 0.6)
    assert calls < 60
    assert watch.since() == calls
    watch.turn("drift")
    assert watch.evidence == 1.0
    assert not any(watch.add(0.2, 1.0, 0.6) for _ in range(300))
    assert fallen(watch, 0.9, 0.1) < 60, "held against the bound of its fall"
    watch.turn(None)
    assert (watch.what, watch.evidence) == (None, 0.0)


def test_a_bound_of_zero_cannot_be_fallen_below() -> None:
    watch = Watch()
    watch._fall._sums = [1e9] * 5  # as after a hundred thousand calls
    assert not any(watch.add(0.0, 1.0, 0.0) for _ in range(100))


def test_its_memory_is_bounded_and_can_be_cleared() -> None:
    watch = Watch()
    for _ in range(3 * RECENT):
        watch.note(0.5, 1.0)
    assert len(watch._recent) == RECENT
    watch.clear()
    assert watch.level(10) is None
