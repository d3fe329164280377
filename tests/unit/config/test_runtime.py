"""The frozen result types."""

from __future__ import annotations

import dataclasses

import pytest

from gateway.config.runtime import Target, Upstream


@pytest.mark.parametrize(
    ("target", "url"),
    [
        (Target("https", "h", 443, "/api/v1"), "https://h/api/v1"),
        (Target("https", "h", 8443, "/v1"), "https://h:8443/v1"),
        (Target("http", "h", 80, "/v1"), "http://h/v1"),
        (Target("http", "::1", 8000, "/v1"), "http://[::1]:8000/v1"),
        (Target("http", "h", 443, ""), "http://h:443"),
    ],
)
def test_the_url_of_a_target(target, url):
    assert target.url == url


def test_secrets_are_left_out_of_the_text_of_an_upstream():
    upstream = Upstream("up", (), api_key="sk-secret", proxy="http://user:secret@proxy")
    assert "secret" not in repr(upstream)


def test_nothing_of_it_can_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Target("http", "h", 80, "/v1").port = 81  # type: ignore[misc]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("bad key sk-a/b+c-1", "bad key [key]"),
        ("bad key sk-a\\/b+c-1", "bad key [key]"),
        ("bad key sk\\u002da\\/b\\u002Bc-1", "bad key [key]"),
        ("cannot reach:\\n10.0.0.5:8000, \\u003c169.254.1.7\\u003e", "cannot reach:\\n[host], \\u003c[host]\\u003e"),
        ("at http://user:pw@vllm:80/", "at http://[host]/"),
        ("at http://10.1.2.3:9000/v1", "at http://[host]/v1"),
        ("at http:\\/\\/vllm:8000\\/v1", "at http:\\/\\/[host]\\/v1"),
        ("db.internal:5432, gpu-7.local. [fd00::1]:80 localhost", "[host], [host]. [host] [host]"),
        (
            "see https://docs.example.com/errors of version 10.1.2",
            "see https://docs.example.com/errors of version 10.1.2",
        ),
        ("1.10.1.2.3 is no address, 8.8.8.8 a public one", "1.10.1.2.3 is no address, 8.8.8.8 a public one"),
    ],
)
def test_keys_and_private_hosts_are_not_shown(said, shown):
    assert Upstream("u", (), api_key="sk-a/b+c-1").redacted(said.encode()).decode() == shown


def test_a_placeholder_is_no_key():
    for key in ("EMPTY", "ollama"):
        assert Upstream("u", (), api_key=key).redacted(key.encode()) == key.encode()


@pytest.mark.parametrize(
    "said", [b"see https://docs.example.com/errors", b"1.10.1.2.3 or 10.1.2", b"8.8.8.8", b"mylan"]
)
def test_what_is_public_is_shown(said):
    assert Upstream("u", ()).redacted(said) == said
