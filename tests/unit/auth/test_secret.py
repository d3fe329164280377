"""Secrets of created keys: their form, and what tells a damaged one."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.secret import PREFIX, digest, is_created, is_damaged, new_secret, prefix_of

SECRET = new_secret()


def test_the_form() -> None:
    assert len(SECRET) == len(PREFIX) + 54
    assert SECRET.removeprefix(PREFIX).isalnum()
    assert is_created(SECRET.encode())
    assert not is_damaged(SECRET.encode())
    assert prefix_of(SECRET) == SECRET[:19]
    assert len({new_secret() for _ in range(100)}) == 100


def test_every_wrong_digit_shows() -> None:
    for place in range(len(PREFIX), len(SECRET)):
        for digit in set("0123456789abcdefgA ") - {SECRET[place]}:
            assert is_damaged(f"{SECRET[:place]}{digit}{SECRET[place + 1 :]}".encode())


@pytest.mark.parametrize("cut", range(1, 54))
def test_a_part_of_it_is_damaged(cut: int) -> None:
    assert is_damaged(SECRET[:-cut].encode())
    assert is_damaged((PREFIX + SECRET[len(PREFIX) + cut :]).encode())


@given(st.binary(max_size=100))
def test_no_bytes_break_it(sent: bytes) -> None:
    for credential in (sent, PREFIX.encode() + sent, SECRET.encode() + sent, sent + SECRET.encode()):
        assert is_damaged(credential) is (credential != SECRET.encode())
        assert is_created(credential) is (credential[:11] == b"sk-turnout-")


@given(st.text("0123456789abcdef", min_size=54, max_size=54))
def test_random_digits_are_damaged(digits: str) -> None:
    assert is_damaged(f"{PREFIX}{digits}".encode()) or digits == SECRET.removeprefix(PREFIX)


def test_a_digest_needs_its_pepper() -> None:
    pepper = os.urandom(32)
    assert digest(pepper, b"a") == digest(pepper, b"a") != digest(pepper, b"b")
    assert digest(pepper, b"a") != digest(os.urandom(32), b"a")
    assert len(digest(pepper, b"a")) == 32
