"""How far budgets are used."""

from __future__ import annotations

import pytest

from gateway.limits.budgets import Budgets
from gateway.limits.demand import Scope, Wanted
from gateway.limits.store import NANO, Purse, Slot, Taken

SCOPE = Scope("key", "ci")


def met(budgets: Budgets, share: float, period: str = "2026-11", scope: Scope = SCOPE) -> None:
    purse = Purse(f"{scope.kind}:{scope.name}:usd:{period}", 5 * NANO, 0, 0, 1)
    wanted = [Wanted(scope, "concurrency", Slot("s", 3)), Wanted(scope, "budget", purse)]
    budgets.note(wanted, Taken(None, 0, (2, round(5 * NANO * (1 - share)))))


def test_each_budget_is_told_as_it_was_last_seen() -> None:
    budgets = Budgets()
    for share in (0.1, 0.3):
        met(budgets, share)
    met(budgets, 0.5, scope=Scope("team", "core"))
    assert budgets.shares() == {("key", "ci"): pytest.approx(0.3), ("team", "core"): 0.5}


def test_a_budget_near_its_end_is_said_once_a_period() -> None:
    told: list[tuple[str, str, float]] = []
    budgets = Budgets(lambda kind, name, used: told.append((kind, name, round(used.share, 2))))
    for share in (0.5, 0.79, 0.81, 0.7, 0.75):
        met(budgets, share)
    met(budgets, 0.95)
    met(budgets, 1.2)
    met(budgets, 1.3)
    met(budgets, 0.1, "2026-12")
    met(budgets, 0.9, "2026-12")
    assert told == [("key", "ci", 0.81), ("key", "ci", 0.95), ("key", "ci", 1.2), ("key", "ci", 0.9)]


def test_only_so_many_are_remembered() -> None:
    budgets = Budgets()
    for number in range(10_050):
        met(budgets, 0.1, scope=Scope("key", str(number)))
    assert len(budgets.shares()) == 10_000
