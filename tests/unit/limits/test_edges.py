"""Which limits are near their edge."""

from __future__ import annotations

import pytest

from gateway import clock
from gateway.limits import edges
from gateway.limits.demand import Scope, Wanted
from gateway.limits.edges import Edges
from gateway.limits.store import NANO, Demand, Purse, Rate, Settled, Slot, Taken


def met(known: Edges, name: str, demand: Demand, left: int) -> None:
    what = {Rate: "requests", Slot: "concurrency", Purse: "budget"}[type(demand)]
    wanted = Wanted(Scope("key", name), what, demand)  # type: ignore[arg-type]
    known.note([wanted], Taken(None, 0, (left,)))


def test_the_nearest_come_first() -> None:
    known = Edges(period=1e9)
    met(known, "a", Rate("a", 100, 1), 90)
    met(known, "b", Slot("b", 4), 1)
    met(known, "c", Purse("c", 5 * NANO, 0, 0, 1), NANO // 2)
    met(known, "a", Rate("a", 100, 1), 80)
    assert known.nearest() == [
        {"kind": "key", "name": "c", "what": "budget", "used": 0.9, "capacity": 5.0, "left": 0.5},
        {"kind": "key", "name": "b", "what": "concurrency", "used": 0.75, "capacity": 4.0, "left": 1.0},
        {"kind": "key", "name": "a", "what": "requests", "used": 0.2, "capacity": 100.0, "left": pytest.approx(80)},
    ]
    assert [row["name"] for row in known.nearest(1)] == ["c"]


def test_a_bucket_fills_up_again() -> None:
    known = Edges(period=1e-9)
    met(known, "a", Rate("a", 100, 1), 0)
    assert known.nearest()[0]["used"] == 0


def test_a_slot_that_is_given_back_is_free() -> None:
    known = Edges()
    slot, bucket = Slot("a", 2), Rate("b", 100, 1)
    met(known, "a", slot, 0)
    met(known, "b", bucket, 50)
    for left in (1.0, 2.0, 2.0):
        known.freed([Settled(slot, 1, 0), Settled(bucket, 1, 0), Settled(Slot("unknown", 1), 1, 0)])
        assert {row["name"]: row["left"] for row in known.nearest()} == {"a": left, "b": pytest.approx(50, abs=5)}


def test_more_than_everything_is_all() -> None:
    known = Edges()
    met(known, "a", Purse("a", NANO, 0, 0, 1), -NANO)
    row = known.nearest()[0]
    assert (row["used"], row["left"]) == (1.0, 0.0)


def test_what_was_long_ago_says_nothing() -> None:
    known = Edges()
    met(known, "a", Slot("a", 4), 1)
    met(known, "b", Purse("b", NANO, 0, 0, 1), 1)
    key, (wanted, left, _) = next(iter(known._met.items()))
    known._met[key] = edges._Met(wanted, left, clock.now() - edges.LATELY_SECONDS)
    assert [row["name"] for row in known.nearest()] == ["b"]


def test_the_longest_unused_are_forgotten() -> None:
    known = Edges()
    for number in range(edges.MOST + 5):
        met(known, f"k{number}", Slot(f"k{number}", 4), 1)
        met(known, "k0", Slot("k0", 4), 1)
    assert len(known._met) == edges.MOST
    assert {"k0", f"k{edges.MOST + 4}"} <= known._met.keys()
    assert "k1" not in known._met
