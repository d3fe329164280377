"""Parts of limits: together never more than the limit, unless there are more replicas than units."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.share import Share
from gateway.limits.store import Purse, Rate, Slot

REPLICAS = st.integers(1, 50)


@given(REPLICAS, st.integers(1, 1000))
def test_parts_of_rates_and_slots(replicas: int, capacity: int) -> None:
    share = Share(replicas, {}, 1)
    for demand in (Rate("k", capacity, 1), Slot("k", capacity)):
        part = share.of(demand).capacity
        assert max(capacity, replicas) >= replicas * part > capacity - replicas
        assert part >= 1


def test_a_call_larger_than_the_part_takes_all_of_it() -> None:
    share = Share(4, {}, 1)
    assert share.of(Rate("k", 100, 60)) == Rate("k", 25, 25)
    assert share.of(Rate("k", 100, 101)) == Rate("k", 25, 101)  # never
    assert share.of(Rate("k", 3, 1)) == Rate("k", 1, 1)


@given(REPLICAS, st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_what_is_left_of_a_purse_is_divided(replicas: int, capacity: int, known: int, seen: int) -> None:
    part = Share(replicas, {"k": seen}, 1).of(Purse("k", capacity, 1, known, 60))
    assert isinstance(part, Purse)
    assert part.floor == max(known, seen)
    assert replicas * (part.capacity - part.floor) <= max(0, capacity - part.floor)


def test_a_purse_is_divided_once_in_an_outage() -> None:
    spent = {"k": 40}
    share = Share(2, spent, 1)
    first = share.of(Purse("k", 100, 1, 0, 60))
    spent["k"] = 90
    assert share.of(Purse("k", 100, 1, 80, 60)) == first == Purse("k#1", 70, 1, 40, 60)
    assert Share(2, spent, 2).of(Purse("k", 100, 1, 80, 60)) == Purse("k#2", 95, 1, 90, 60)
