"""Which credential names which caller, and that no other one does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.keyring import Keyring, is_admin
from gateway.auth.secret import new_secret
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


# -- created keys


LIVE, REVOKED, DAMAGED = new_secret().encode(), new_secret().encode(), new_secret().encode()[:-1]
CREATED = Caller("made", "core", metadata=(("env", "dev"),))


class Made:
    """Two created keys, one of them revoked."""

    known = True

    def find(self, credential: bytes) -> Caller | None:
        if credential == REVOKED:
            raise GatewayError("invalid_api_key", "The API key 'old' was revoked on 2027-01-15 08:00 UTC.")
        return CREATED if credential == LIVE else None


class Unread(Made):
    """The database has not answered yet."""

    known = False

    def find(self, credential: bytes) -> Caller | None:
        return None


@pytest.mark.parametrize("ring", [Keyring(CLOSED, Made()), Keyring(a_runtime(), Made())], ids=["closed", "open"])
def test_a_created_key(ring: Keyring) -> None:
    for headers in ({b"authorization": b"BEARER  " + LIVE}, {b"x-api-key": LIVE + b" "}):
        assert ring.identify(headers) == CREATED
    assert "revoked" in refused({b"x-api-key": REVOKED}, ring)


def test_static_and_created_keys_work_side_by_side() -> None:
    ring = Keyring(CLOSED, Made())
    assert ring.identify({b"x-api-key": b"sk-ci"}).key == "ci"
    assert "damaged" in refused({b"x-api-key": DAMAGED}, ring)
    assert "does not know" in refused({b"x-api-key": new_secret().encode()}, ring)
    assert "does not know" in refused({b"x-api-key": b"sk-turnou"}, ring)


def test_a_static_key_may_look_like_a_created_one() -> None:
    runtime = a_runtime(keys=(StaticKey("mine", "sk-turnout-mine"),), open_to_all=False)
    assert Keyring(runtime, Made()).identify({b"x-api-key": b"sk-turnout-mine"}).key == "mine"


@pytest.mark.parametrize(
    "sent", [DAMAGED, new_secret().encode(), b"unused", b""], ids=["damaged", "never made", "a word", "nothing"]
)
def test_an_open_gateway_takes_whatever_is_no_created_key(sent: bytes) -> None:
    assert Keyring(a_runtime(), Made()).identify({b"x-api-key": sent}).key == "anonymous"


def test_keys_that_are_not_read_yet_are_not_called_unknown() -> None:
    """A client that is told 401 does not try again."""
    ring = Keyring(CLOSED, Unread())
    with pytest.raises(GatewayError) as refusal:
        ring.identify({b"x-api-key": LIVE})
    assert (refusal.value.status, refusal.value.retry_after) == (503, 2)
    assert "damaged" in refused({b"x-api-key": DAMAGED}, ring)
    assert "does not know" in refused({b"x-api-key": b"sk-other"}, ring)
    assert ring.identify({b"x-api-key": b"sk-ci"}).key == "ci"


@given(st.binary(max_size=80))
def test_no_bytes_are_a_created_key(sent: bytes) -> None:
    ring = Keyring(CLOSED, Made())
    for credential in (sent, b"sk-turnout-" + sent, LIVE + sent, sent + LIVE):
        if credential.strip() not in (LIVE, b""):
            refused({b"x-api-key": credential}, ring)


def test_the_admin_key() -> None:
    assert is_admin(CLOSED, {b"authorization": b"Bearer sk-admin"})
    assert is_admin(CLOSED, {b"x-api-key": b"sk-admin"})
    for headers in ({}, {b"x-api-key": b"sk-ci"}, {b"authorization": b"sk-admin"}, {b"x-api-key": "sk-ädmin".encode()}):
        assert not is_admin(CLOSED, headers)


@pytest.mark.parametrize("headers", [{}, {b"x-api-key": b""}, {b"authorization": b"Bearer "}, {b"x-api-key": b"None"}])
def test_without_an_admin_key_nobody_is_admin(headers: dict[bytes, bytes]) -> None:
    assert not is_admin(a_runtime(), headers)
