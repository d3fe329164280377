"""Whose X-Forwarded-For is believed."""

from __future__ import annotations

import pytest

from gateway.edge.origin import Proxies, cors


@pytest.mark.parametrize(
    ("trusted", "peer", "forwarded", "client"),
    [
        ((), "203.0.113.9", b"198.51.100.1", "203.0.113.9"),
        (("10.0.0.0/8",), "203.0.113.9", b"198.51.100.1", "203.0.113.9"),
        (("10.0.0.0/8",), "10.1.2.3", b"198.51.100.1", "198.51.100.1"),
        (("10.0.0.0/8",), "10.1.2.3", b"6.6.6.6, 198.51.100.1", "198.51.100.1"),
        (("10.0.0.0/8",), "10.1.2.3", b"6.6.6.6, 198.51.100.1, 10.9.9.9", "198.51.100.1"),
        (("10.0.0.0/8",), "10.1.2.3", b"10.7.7.7, 10.9.9.9", "10.7.7.7"),
        (("10.1.2.3",), "10.1.2.3", b"", "10.1.2.3"),
        (("10.1.2.3",), "10.1.2.3", b"unknown", "10.1.2.3"),
        (("10.1.2.3",), "10.1.2.3", b"\xff\xfe, 1.2.3.4:99", "10.1.2.3"),
        (("::1",), "::1", b"2001:db8::7", "2001:db8::7"),
        (("::1",), "127.0.0.1", b"2001:db8::7", "127.0.0.1"),
        (("10.0.0.0/8",), "", b"198.51.100.1", ""),
    ],
)
def test_the_client_is_the_last_address_that_a_trusted_proxy_vouches_for(
    trusted: tuple[str, ...], peer: str, forwarded: bytes, client: str
) -> None:
    assert Proxies(trusted).client(peer, {b"x-forwarded-for": forwarded}) == client


def test_without_origins_nothing_stands_in_between() -> None:
    async def application(*_: object) -> None: ...

    assert cors(application, ()) is application
    assert cors(application, ("https://a.example",)) is not application
