"""What is kept for Redis while it is away."""

from __future__ import annotations

from gateway.limits.backlog import Backlog
from gateway.limits.store import Purse, Rate, Settled, Slot

SLOT, PURSE, RATE = Slot("slot", 1), Purse("purse", 100, 10, 0, 60), Rate("rate", 10, 1)


def test_slots_are_freed_money_is_charged_buckets_are_left_alone() -> None:
    backlog = Backlog()
    backlog.add("a", [Settled(SLOT, 1, 0), Settled(PURSE, 10, 7), Settled(RATE, 1, 5)], unsure=False)
    assert list(backlog.drain()) == [
        ("a", (Settled(SLOT, 1, 0),), True),
        ("a", (Settled(PURSE, 10, 0),), True),
        ("", [Settled(PURSE, 0, 7)], False),
    ]
    assert list(backlog.drain()) == []


def test_what_redis_may_have_heard_is_charged_only_where_it_is_still_reserved() -> None:
    backlog = Backlog()
    backlog.add("a", [Settled(PURSE, 10, 7)], unsure=True)
    assert list(backlog.drain()) == [("a", (Settled(PURSE, 10, 7),), True)]


def test_charges_are_summed_and_never_dropped_for_doubt_alone() -> None:
    backlog = Backlog()
    for unsure in (False, True):
        backlog.add("", [Settled(PURSE, 0, 7)], unsure)
    assert list(backlog.drain()) == [("", [Settled(PURSE, 0, 14)], False)]


def test_it_is_bounded() -> None:
    backlog = Backlog(most=10)
    for number in range(50):
        purse = Purse(f"purse-{number}", 100, 10, 0, 60)
        backlog.add(f"lease-{number}", [Settled(SLOT, 1, 0), Settled(purse, 10, 7)], unsure=False)
    assert len(backlog) == 20
    leases = {lease for lease, _, _ in backlog.drain()}
    assert leases == {"", *(f"lease-{number}" for number in range(45, 50))}
