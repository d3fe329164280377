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
