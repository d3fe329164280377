"""The shared vocabulary of limit stores."""

from __future__ import annotations

from gateway.limits.store import NANO, Purse


def test_money_stays_exact_in_the_numbers_of_redis() -> None:
    nine_million = Purse("k", 9_000_000 * NANO, 0, 0, 1)
    assert float(nine_million.capacity + 1) - float(nine_million.capacity) == 1.0
