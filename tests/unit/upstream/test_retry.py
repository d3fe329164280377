"""What may be asked once more, when, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.call import Attempt
from gateway.errors import CAUSES, UpstreamFailure
from gateway.upstream.retry import BACK_OFF, LONGEST_WAIT, RESERVE, Budget, Chance, Failed, Retries
from tests.unit.building import a_model

SAFE = {("connect", None), ("rate_limit", 429), ("overloaded", 503), ("overloaded", 529), ("server_error", 502)}
UNSAFE = {("server_error", 500), ("overloaded", None), ("server_error", None)} | {
    (cause, 503) for cause in CAUSES if cause not in ("connect", "rate_limit", "overloaded")
}


def failed(cause: str, name: str = "m0", **more: Any) -> Failed:
    return Failed(Attempt(a_model(name), ""), UpstreamFailure(cause, "", **more))


def retries(draw: Any = lambda low, high: 0.2) -> Retries:
    return Retries(["u0"], draw)


def chance(*failures: Failed, remaining: float = 600.0) -> tuple[str, float] | None:
    """(model, seconds to wait)."""
    found = retries().second_chance(failures, remaining)
    return (found.attempt.model.name, found.wait) if found is not None else None


@pytest.mark.parametrize(("cause", "status"), sorted(SAFE, key=str))
def test_what_is_safe(cause: str, status: int | None) -> None:
    assert chance(failed(cause, status=status)) == ("m0", 0.2)


@pytest.mark.parametrize(("cause", "status"), sorted(UNSAFE, key=str))
def test_what_is_not(cause: str, status: int | None) -> None:
    """The call may have begun, or would fail again."""
    assert chance(failed(cause, status=status)) is None


@pytest.mark.parametrize(
    ("stated", "remaining", "wait"),
    [
        (5.0, 600.0, 5.2),
        (LONGEST_WAIT, 600.0, LONGEST_WAIT + 0.2),
        (LONGEST_WAIT + 0.1, 600.0, None),
        (5.0, 11.0, 5.2),
        (5.0, 10.0, None),
        (None, 0.3, None),
    ],
)
def test_how_long(stated: float | None, remaining: float, wait: float | None) -> None:
    found = chance(failed("rate_limit", status=429, retry_after=stated), remaining=remaining)
    assert (found and found[1]) == (pytest.approx(wait) if wait is not None else None)


def test_the_shortest_wait_of_all() -> None:
    late, soon = failed("rate_limit", retry_after=9.0), failed("rate_limit", "m1", retry_after=1.0)
    assert chance(late, soon, failed("cut", "m2")) == ("m1", 1.2)


def test_once_in_a_call() -> None:
    assert chance(failed("connect"), failed("connect", "m1"), failed("connect")) is None


def test_jitter() -> None:
    drawn = Retries(["u0"]).second_chance([failed("connect")], 600.0)
    assert isinstance(drawn, Chance)
    assert BACK_OFF[0] <= drawn.wait <= BACK_OFF[1]


def test_the_budget() -> None:
    """A reserve, and then one for every five calls."""
    budget = Budget()
    assert sum(budget.spend() for _ in range(50)) == RESERVE
    for _ in range(24):
        budget.earn()
    assert [budget.spend() for _ in range(5)] == [True] * 4 + [False]
    for _ in range(1000):
        budget.earn()
    assert sum(budget.spend() for _ in range(50)) <= RESERVE + 1


def test_each_upstream_has_its_own() -> None:
    policy = Retries(["u0", "u1"])
    while policy.budgets["u0"].spend():
        pass
    assert policy.second_chance([failed("connect")], 600.0) is None
    assert policy.budgets["u1"].spend()


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_another_address_is_asked_at_once(cause: str) -> None:
    """Whatever it was, if another model could have answered; nothing that the gateway itself lacks."""
    failures = [failed(cause, retry_after=5.0)]
    found = retries().second_chance(failures, 600.0, lambda attempt: attempt.model.name == "m0")
    moves = CAUSES[cause].next == "yes" and cause not in ("limit", "pool")
    assert (found is not None and found.wait == 0.0) is moves
    again = [*failures, *failures]
    assert retries().second_chance(again, 600.0, lambda attempt: True) is None
