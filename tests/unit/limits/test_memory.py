"""What only the memory store has: bounds, and a clock that a test can turn."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.memory import Buckets, MemoryStore, Purses
from gateway.limits.store import Purse, Rate, Settled, Slot


class Clock:
    """A clock that stands still until it is turned."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_oldest_full_buckets_are_dropped() -> None:
    buckets = Buckets(period=60.0, keys=3)
    for number in range(3):
        buckets.take("a", Rate(f"old-{number}", 60, 10), 0.0)
    buckets.take("a", Rate("new", 60, 60), 20.0)  # the old ones are full again at 10
    assert len(buckets) == 1
    assert buckets.left(Rate("new", 60, 1), 20.0) == 0


def test_the_number_of_keys_is_bounded() -> None:
    buckets, purses = Buckets(60.0, 100), Purses(30.0, 100)
    for number in range(1000):
        buckets.take("a", Rate(f"k{number}", 60, 10), 0.0)
        purses.take("a", Purse(f"k{number}", 60, 10, 0, 1000), 0.0)
    assert len(buckets) == len(purses) == 100
    assert buckets.left(Rate("k999", 60, 1), 0.0) == 50
    assert purses.left(Purse("k999", 60, 10, 0, 1000), 0.0) == 50


def test_expired_leases_free_their_places_in_turn() -> None:
    clock = Clock()
    limits = MemoryStore(lease_seconds=10.0, now=clock)
    slots = Slot("s", 2)
    limits.take_now("a", [slots])
    clock.now += 6
    limits.take_now("b", [slots])
    clock.now += 2
    limits.renew([("a", [slots])])
    assert limits.take_now("c", [slots]).refused == 0
    clock.now += 9  # `b` is eleven seconds old, `a` was renewed nine seconds ago
    assert limits.take_now("c", [slots]).left == (0,)
    assert limits.take_now("d", [slots]).refused == 0


def test_sums_of_fractions_lose_no_unit() -> None:
    limits = MemoryStore(period=60.0, now=Clock())
    for capacity in range(1, 200):
        rate = Rate(f"of-{capacity}", capacity, 1)
        lefts = [limits.take_now("a", [rate]).left[0] for _ in range(capacity)]
        assert lefts == list(range(capacity))[::-1]
        assert limits.take_now("a", [rate]).refused == 0


@given(st.integers(1, 5000), st.lists(st.tuples(st.integers(0, 700), st.integers(0, 100)), max_size=60))
def test_a_bucket_is_the_plain_token_bucket(capacity: int, steps: Sequence[tuple[int, int]]) -> None:
    """Against levels in exact fractions; decisions may differ by less than a microsecond's worth."""
    clock = Clock()
    limits = MemoryStore(period=8.0, now=clock)
    level, slack = Fraction(capacity), Fraction(capacity, 1_000_000)
    for cost, sixteenths in steps:
        clock.now += sixteenths / 16
        level = min(Fraction(capacity), level + Fraction(capacity * sixteenths, 16 * 8))
        taken = limits.take_now("a", [Rate("k", capacity, cost)])
        if taken.refused is None:
            assert cost <= level + slack
            level -= cost
        else:
            assert cost >= level - slack
        assert abs(taken.left[0] - max(Fraction(0), level)) <= 1 + slack


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 80)), min_size=1, max_size=30))
def test_settling_at_once_is_the_same_as_having_taken_what_was_used(calls: Sequence[tuple[int, int]]) -> None:
    clock = Clock()
    limits, plain = MemoryStore(now=clock), MemoryStore(now=clock)
    for reserved, used in calls:
        rate = Rate("k", 100_000, reserved)
        limits.take_now("a", [rate])
        limits.settle("a", [Settled(rate, reserved, used)])
        plain.take_now("a", [Rate("k", 100_000, used)])
    peek = [Rate("k", 100_000, 0)]
    assert abs(limits.take_now("x", peek).left[0] - plain.take_now("x", peek).left[0]) <= 1
