"""Which credential names which caller, and that no other one does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.keyring import Keyring, is_admin
from gateway.call import Caller
from gateway.config.runtime import GatewaySettings, StaticKey
from gateway.errors import GatewayError
from tests.unit.building import a_runtime

KEYS = (
    StaticKey("ci", "sk-ci", team="platform", models=("auto", "m0")),
    StaticKey("none", "sk-none", models=()),
    StaticKey("all", "sk all+/=~"),
)
CLOSED = a_runtime(keys=KEYS, open_to_all=False, gateway=GatewaySettings(admin_key="sk-admin"))
RING = Keyring(CLOSED)


def refused(headers: dict[bytes, bytes], ring: Keyring = RING) -> str:
    with pytest.raises(GatewayError) as refusal:
        ring.identify(headers)
    assert (refusal.value.code, refusal.value.status) == ("invalid_api_key", 401)
    return refusal.value.message


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer sk-ci"},
        {b"authorization": b"bearer sk-ci"},
        {b"authorization": b"BEARER   sk-ci  "},
        {b"x-api-key": b"sk-ci"},
        {b"x-api-key": b"  sk-ci "},
        {b"authorization": b"Bearer sk-ci", b"x-api-key": b"other"},
    ],
)
def test_the_right_key(headers: dict[bytes, bytes]) -> None:
    assert RING.identify(headers) == Caller("ci", "platform", frozenset({"auto", "m0"}))


def test_what_a_key_may_use() -> None:
    assert RING.identify({b"x-api-key": b"sk-none"}).models == frozenset()
    assert RING.identify({b"x-api-key": b"sk all+/=~"}).models is None


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "No API key was sent"),
        ({b"x-api-key": b" "}, "No API key was sent"),
        ({b"authorization": b""}, "must read 'Bearer <key>'"),
        ({b"authorization": b"Bearer"}, "must read 'Bearer <key>'"),
        ({b"authorization": b"Basic sk-ci"}, "must read 'Bearer <key>'"),
        ({b"authorization": b"sk-ci"}, "must read 'Bearer <key>'"),
        ({b"authorization": b"Basic x", b"x-api-key": b"sk-ci"}, "must read 'Bearer <key>'"),
        ({b"authorization": b"Bearer sk-c"}, "does not know"),
        ({b"authorization": b"Bearer sk-ci\0"}, "does not know"),
        ({b"authorization": b"Bearer \xff\xfe"}, "does not know"),
        ({b"x-api-key": b"ci"}, "does not know"),
        ({b"x-api-key": b"SK-CI"}, "does not know"),
        ({b"x-api-key": b"sk-admin"}, "does not know"),
    ],
)
def test_the_wrong_key(headers: dict[bytes, bytes], words: str) -> None:
    message = refused(headers)
    assert words in message
    assert "sk-" not in message


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_no_bytes_open_it(authorization: bytes, key: bytes) -> None:
    refused({b"authorization": authorization, b"x-api-key": key})
    assert not is_admin(CLOSED, {b"authorization": authorization, b"x-api-key": key})


@pytest.mark.parametrize("headers", [{}, {b"authorization": b"Basic x"}, {b"x-api-key": b"\xff"}])
def test_an_open_gateway_takes_anyone(headers: dict[bytes, bytes]) -> None:
    assert Keyring(a_runtime()).identify(headers) == Caller("anonymous", None, None)


def test_keys_that_are_all_off_open_nothing() -> None:
    refused({b"x-api-key": b""}, Keyring(a_runtime(keys=(), open_to_all=False)))


def test_the_keys_are_not_held() -> None:
    assert "sk-ci" not in repr(vars(RING))
    assert b"sk-ci" not in b"".join(value for value in vars(RING).values() if isinstance(value, bytes))


def test_the_admin_key() -> None:
    assert is_admin(CLOSED, {b"authorization": b"Bearer sk-admin"})
    assert is_admin(CLOSED, {b"x-api-key": b"sk-admin"})
    for headers in ({}, {b"x-api-key": b"sk-ci"}, {b"authorization": b"sk-admin"}, {b"x-api-key": "sk-ädmin".encode()}):
        assert not is_admin(CLOSED, headers)


@pytest.mark.parametrize("headers", [{}, {b"x-api-key": b""}, {b"authorization": b"Bearer "}, {b"x-api-key": b"None"}])
def test_without_an_admin_key_nobody_is_admin(headers: dict[bytes, bytes]) -> None:
    assert not is_admin(a_runtime(), headers)
