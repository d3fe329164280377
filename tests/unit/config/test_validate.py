"""Pydantic's errors in plain words, and what is left of a file that is partly wrong."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.schema import Upstream
from gateway.config.validate import known_keys, section_of, validate

GOOD = {
    "version": 1,
    "upstreams": {"up": {"base_url": "http://h/v1"}},
    "models": {"fast": {"upstream": "up", "model": "m"}},
    "routes": {"auto": {"default": "fast"}},
}


def test_a_good_file():
    checked = validate(GOOD, {})
    assert checked.config is not None
    assert (checked.findings, checked.pruned) == ((), ())


@pytest.mark.parametrize(
    ("path", "some"),
    [
        ((), ("version", "gateway")),
        (("gateway", "timeouts"), ("connect", "first_event", "idle", "total")),
        (("models", "fast"), ("upstream", "model")),
        (("models", "fast", "price", "plan"), ("usd", "per", "tokens")),
        (("models", "fast", "parameters", "temperature"), ("action", "set", "clamp")),
        (("routes", "auto", "rules", 0, "when"), ("task", "keywords")),
        (("routes", "auto", "rules", 0, "when", "prompt_tokens"), ("over", "under")),
        (("keys", 3, "budget"), ("usd", "per")),
        (("upstreams", "up", "engine"), ("checkpoint", "port")),
        (("limits", "teams", "x"), ("requests_per_minute",)),
    ],
)
def test_the_keys_that_are_known_at_a_path(path, some):
    assert known_keys(path)[: len(some)] == some


@pytest.mark.parametrize(
    "path", [("models",), ("nothing",), ("gateway", "port", "x"), ("upstreams", "u", "engine", "args")]
)
def test_where_no_keys_are_known(path):
    assert known_keys(path) == ()


def test_the_section_behind_an_annotation():
    assert section_of(Upstream) is Upstream
    assert section_of(Upstream | None) is Upstream
    assert section_of(dict[str, Upstream]) is None
    assert section_of(int) is None


@pytest.mark.parametrize(
    ("path", "word", "suggestion"),
    [
        ("upstreams.up", "base_ur", 'did you mean "base_url"?'),
        ("upstreams.up", "apikey", 'did you mean "api_key"?'),
        ("models.fast", "Model_", 'did you mean "model"?'),
        ("routes.auto", "fallbacks", 'did you mean "fallback"?'),
        ("", "model", 'did you mean "models"?'),
        ("", "port", 'it belongs into "gateway"'),
        ("gateway", "idle", 'it belongs into "timeouts"'),
        ("", "zzz", None),
    ],
)
def test_the_suggestion_for_an_unknown_key(path, word, suggestion):
    values: dict[str, Any] = {**GOOD, "gateway": {}}
    inner = values
    for step in filter(None, path.split(".")):
        inner[step] = dict(inner[step])
        inner = inner[step]
    inner[word] = 1
    (finding,) = validate(values, {}).findings
    assert (finding.message, finding.suggestion) == ("unknown key", suggestion)


def test_a_misspelt_required_key_is_told_once():
    values = {**GOOD, "models": {"fast": {"upstraem": "up", "model": "m"}}}
    (finding,) = validate(values, {}).findings
    assert finding.path == ("models", "fast", "upstraem")


def test_a_key_that_is_missing_beside_an_unrelated_unknown_one_is_told():
    values = {**GOOD, "models": {"fast": {"zzz": "up", "model": "m"}}}
    assert [finding.message for finding in validate(values, {}).findings] == ["is required", "unknown key"]


def test_the_rest_of_a_file_is_still_there():
    values = {**GOOD, "gateway": {"port": "x", "host": "::1"}, "keys": [{"name": "a"}, {"name": "b", "key": "k"}]}
    checked = validate(values, {})
    assert checked.config is not None
    assert (checked.config.gateway.host, checked.config.gateway.port) == ("::1", 8080)
    assert checked.config.keys == ()
    assert set(checked.pruned) == {("gateway", "port"), ("keys", 0)}
    assert values["gateway"] == {"port": "x", "host": "::1"}


def test_a_file_without_anything_usable():
    checked = validate({"version": 1, "upstreams": 1, "models": 1}, {})
    assert checked.config is None
    assert [finding.path for finding in checked.findings] == [("upstreams",), ("models",)]


def test_a_text_that_stands_for_a_list_keeps_its_own_path():
    values = {**GOOD, "models": {"fast": {"upstream": "up", "model": ""}}}
    (finding,) = validate(values, {}).findings
    assert (finding.path, finding.message) == (("models", "fast", "model"), "must not be empty")


def test_the_variable_behind_a_wrong_value_is_named():
    values = {**GOOD, "gateway": {"port": "secret"}}
    (finding,) = validate(values, {("gateway", "port"): ("PORT",)}).findings
    assert finding.message == "must be a whole number (comes from PORT)"
