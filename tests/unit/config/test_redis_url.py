"""Redis URLs: what they may say, and that the password is repeated nowhere."""

from __future__ import annotations

import pytest

from gateway.config.redis_url import Address


@pytest.mark.parametrize(
    ("url", "shown", "greeting"),
    [
        ("redis://cache", "cache:6379", []),
        ("redis://cache:7000/3", "cache:7000 (database 3)", [("SELECT", "3")]),
        ("redis://:s%40cr%2Fet@cache/", "cache:6379", [("AUTH", "s@cr/et")]),
        ("redis://me:secret@[::1]:7000/1", "[::1]:7000 (database 1)", [("AUTH", "me", "secret"), ("SELECT", "1")]),
        ("redis://cache?db=2", "cache:6379 (database 2)", [("SELECT", "2")]),
        ("unix:///run/redis%20a.sock?db=2", "unix:///run/redis a.sock (database 2)", [("SELECT", "2")]),
        ("unix://me:secret@/run/redis.sock", "unix:///run/redis.sock", [("AUTH", "me", "secret")]),
    ],
)
def test_urls(url: str, shown: str, greeting: list[tuple[str, ...]]) -> None:
    address = Address.parse(url)
    assert (str(address), address.greeting(), address.tls) == (shown, greeting, None)


def test_tls_is_checked() -> None:
    tls = Address.parse("rediss://cache").tls
    assert tls is not None
    assert tls.check_hostname


@pytest.mark.parametrize(
    "url",
    [
        "cache:6379/secret",
        "http://:secret@cache",
        "redis://:secret",
        "redis://:secret/1@cache",
        "redis://:secret@cache:70000",
        "redis://:secret@cache/secret",
        "redis://:secret@cache?ssl_cert_reqs=none",
        "redis://",
        "unix://",
    ],
)
def test_faulty_urls_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        Address.parse(url)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_the_password_is_not_shown() -> None:
    address = Address.parse("redis://me:secret@cache")
    assert "secret" not in f"{address} {address!r} {address.elsewhere('other:1')!r}"


def test_a_cluster_names_another_node() -> None:
    address = Address.parse("redis://:secret@cache")
    assert str(address.elsewhere("10.0.0.1:7001")) == "10.0.0.1:7001"
    assert str(address.elsewhere("::1:7001")) == "[::1]:7001"
    assert str(address.elsewhere(":7001")) == "cache:7001"
    assert address.elsewhere("10.0.0.1:7001").greeting() == [("AUTH", "secret")]
