"""Case C24: every spelling of a base URL has one normal form."""

from __future__ import annotations

import pytest

from gateway.config.base_url import resolve

SPELLINGS = {
    # TaoToken, as people write it
    "https://taotoken.net/api": "https://taotoken.net/api/v1",
    "https://taotoken.net/api/": "https://taotoken.net/api/v1",
    "https://taotoken.net/api/v1": "https://taotoken.net/api/v1",
    "https://taotoken.net/api/v1/": "https://taotoken.net/api/v1",
    "https://taotoken.net/api/v1/chat/completions": "https://taotoken.net/api/v1",
    "https://taotoken.net/api/v1/chat/completions/": "https://taotoken.net/api/v1",
    "https://taotoken.net/api/v1/chat/completions/chat/completions": "https://taotoken.net/api/v1",
    "https://taotoken.net/api/v1/messages": "https://taotoken.net/api/v1",
    # a bare host
    "http://f": "http://f/v1",
    "http://f/": "http://f/v1",
    "http://f/v1": "http://f/v1",
    "http://f/v1/": "http://f/v1",
    "http://f//v1//": "http://f/v1",
    "http://f/v1/v1": "http://f/v1",
    "http://f/api/v1": "http://f/api/v1",
    "http://f/v1/chat/completions": "http://f/v1",
    "http://f/v1/embeddings": "http://f/v1",
    "http://f/v1/models": "http://f/v1",
    # sub-paths and versions of others
    "https://h/a/b/c": "https://h/a/b/c/v1",
    "https://h/api/paas/v4": "https://h/api/paas/v4",
    "https://h/v1beta/openai": "https://h/v1beta/openai",
    "https://h/v1/account/gateway/openai": "https://h/v1/account/gateway/openai",
    "https://h/openai/chat/completions": "https://h/openai",
    # hosts and ports
    "HTTPS://TaoToken.NET/api": "https://taotoken.net/api/v1",
    "https://h:443/v1": "https://h/v1",
    "http://h:80/v1": "http://h/v1",
    "https://h:8443/v1": "https://h:8443/v1",
    "http://[::1]:8000": "http://[::1]:8000/v1",
    "http://[2001:db8::1]/v1": "http://[2001:db8::1]/v1",
    " https://h/v1\n": "https://h/v1",
}


@pytest.mark.parametrize("written", SPELLINGS)
def test_normal_form(written):
    assert resolve(written).url == SPELLINGS[written]


@pytest.mark.parametrize("written", SPELLINGS)
def test_the_normal_form_stays_as_it_is(written):
    if not written.endswith("/openai/chat/completions"):
        target = resolve(written)
        assert resolve(target.url) == target


def test_the_parts_of_a_target():
    target = resolve("http://[::1]:8000/api")
    assert (target.scheme, target.host, target.port, target.prefix) == ("http", "::1", 8000, "/api/v1")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("taotoken.net/api", "must start with http:// or https://"),
        ("ftp://h/v1", "must start with http:// or https://"),
        ("", "must start with http:// or https://"),
        ("https://user:pw-secret@h/v1", "user name or password"),
        ("https://sk-secret@h/v1", "user name or password"),
        ("https://h/v1?key=secret", "query or fragment"),
        ("https://h/v1#secret", "query or fragment"),
        ("https://h/v1?", "query or fragment"),
        ("https:///v1", "no valid host"),
        ("https://ho st/v1", "no valid host"),
        ("https://bücher.example/v1", "xn--"),
        ("https://h:0/v1", "port"),
        ("https://h:65536/v1", "port"),
        ("https://h:secret/v1", "port"),
        ("https://h/a b", "path"),
        ("https://h/a/../v1", "path"),
        ("https://h/ü", "path"),
        ("http://[::1/v1", "not a URL"),
    ],
)
def test_what_is_refused_and_that_it_is_not_repeated(written, message):
    with pytest.raises(ValueError, match=message) as caught:
        resolve(written)
    assert "secret" not in str(caught.value)


def test_a_resolution_that_changed_something_is_a_notice(load_text, minimal):
    text = minimal.replace("http://127.0.0.1:9999/v1", "https://taotoken.net/api")
    (notice,) = load_text(text).notices
    assert notice.where.endswith("routing.yaml:3: upstreams.up.base_url")
    assert (notice.text, notice.trouble) == ("resolved to https://taotoken.net/api/v1", False)


def test_a_list_gives_one_target_each(load_text, minimal):
    text = minimal.replace('"http://127.0.0.1:9999/v1"', "[http://10.0.0.1:8000, http://10.0.0.2:8000/v1]")
    runtime = load_text(text)
    assert [target.host for target in runtime.upstreams["up"].targets] == ["10.0.0.1", "10.0.0.2"]
    assert [notice.where.rpartition(": ")[2] for notice in runtime.notices] == ["upstreams.up.base_url[0]"]


def test_a_refused_address_is_told_with_its_place_in_the_list(refused, minimal):
    text = minimal.replace('"http://127.0.0.1:9999/v1"', "[http://h/v1, h, http://h/]")
    assert [(problem.path, problem.message) for problem in refused(text)] == [
        ("upstreams.up.base_url[1]", "must start with http:// or https://"),
        ("upstreams.up.base_url[2]", "is the same address as base_url[0]"),
    ]
