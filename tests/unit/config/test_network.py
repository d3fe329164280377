"""What an address says about itself."""

from __future__ import annotations

import pytest

from gateway.config.network import is_loopback, is_private, listed


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST.", "a.localhost"])
def test_loopback(host):
    assert is_loopback(host)
    assert is_private(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com", ""])
def test_not_loopback(host):
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.1",
        "192.168.1.1",
        "172.31.0.1",
        "169.254.1.1",
        "fd00::1",
        "fe80::1",
        "::ffff:10.0.0.1",
        "vllm",
        "a.local",
    ],
)
def test_private(host):
    assert is_private(host)


@pytest.mark.parametrize("host", ["8.8.8.8", "2606:4700::1111", "taotoken.net", "172.32.0.1", "::ffff:8.8.8.8"])
def test_public(host):
    assert not is_private(host)


@pytest.mark.parametrize(
    ("host", "exceptions"),
    [
        ("taotoken.net", "*"),
        ("taotoken.net", "taotoken.net"),
        ("taotoken.net", "TaoToken.NET"),
        ("api.taotoken.net", "taotoken.net"),
        ("api.taotoken.net", ".taotoken.net"),
        ("api.taotoken.net", "*.taotoken.net"),
        ("taotoken.net", "a,b , taotoken.net"),
        ("taotoken.net", "a taotoken.net"),
        ("taotoken.net", "taotoken.net:443"),
        ("8.8.8.8", "8.8.0.0/16"),
        ("8.8.8.8", "8.8.8.8:443"),
        ("2606:4700::1111", "2606:4700::/32"),
        ("2606:4700::1111", "[2606:4700::1111]:443"),
        ("2606:4700::1111", "2606:4700::1111"),
    ],
)
def test_listed(host, exceptions):
    assert listed(host, 443, exceptions)


@pytest.mark.parametrize(
    ("host", "exceptions"),
    [
        ("taotoken.net", ""),
        ("taotoken.net", ", ,"),
        ("nottaotoken.net", "taotoken.net"),
        ("taotoken.net", "taotoken.net:8443"),
        ("8.8.8.8", "9.0.0.0/8"),
        ("8.8.8.8", "8.8.8.8/x"),
        ("1.8.8.8", "8.8.8"),
        ("taotoken.net", "10.0.0.0/8"),
    ],
)
def test_not_listed(host, exceptions):
    assert not listed(host, 443, exceptions)
