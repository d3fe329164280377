"""Cookies of the operations page, and how often somebody may guess its key."""

from __future__ import annotations

import pytest

from gateway.errors import GatewayError
from gateway.ops.session import MOST_ADDRESSES, SECONDS, Guesses, new_session, session_of

KEY = "sk-admin-key"


def test_a_session_lasts_for_its_time() -> None:
    cookie = new_session(KEY, 1000.0)
    assert session_of(KEY, cookie, 1000.0) == cookie.split(".")[1]
    assert session_of(KEY, cookie, 999.0 + SECONDS)
    assert session_of(KEY, cookie, 1000.0 + SECONDS) is None
    assert session_of(KEY, new_session(KEY))


def test_another_key_ends_it() -> None:
    assert session_of("sk-admin-kez", new_session(KEY)) is None


def test_no_two_are_alike_and_none_holds_the_key() -> None:
    one, other = new_session(KEY, 1.0), new_session(KEY, 1.0)
    assert one != other
    assert KEY not in one


def test_whatever_is_changed_ends_it() -> None:
    cookie = new_session(KEY, 1000.0)
    ends, session, signature = cookie.split(".")
    changed = [
        f"{int(ends) + 1}.{session}.{signature}",
        f"{ends}.{'0' * 8}.{signature}",
        f"{ends}.{session}.{'0' * 64}",
    ]
    broken = ["", ".", cookie[:-1], cookie + "0", cookie.upper(), f"{ends}.{session}", "٣" + cookie[1:], "x" * 10_000]
    for wrong in [*changed, *broken]:
        assert session_of(KEY, wrong, 1000.0) is None


def test_five_wrong_keys_a_minute() -> None:
    guesses = Guesses(5, 60.0)
    for _ in range(5):
        guesses.check("192.0.2.1")
        guesses.note("192.0.2.1")
    with pytest.raises(GatewayError) as refused:
        guesses.check("192.0.2.1")
    assert refused.value.code == "rate_limit_exceeded"
    assert 1 <= (refused.value.retry_after or 0) <= 60
    guesses.check("192.0.2.2")


def test_then_it_may_try_again() -> None:
    guesses = Guesses(1, 0.0)
    guesses.note("a")
    guesses.check("a")


def test_the_addresses_are_bounded() -> None:
    guesses = Guesses(1)
    for number in range(MOST_ADDRESSES + 1):
        guesses.note(str(number))
    assert len(guesses._wrong) == MOST_ADDRESSES
