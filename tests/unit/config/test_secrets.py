"""Case C26: keys with a newline, empty, unset, or with something inside; and that no text ever shows one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from gateway.config.document import parse

UPSTREAM = """\
version: 1
upstreams:
  up:
    base_url: https://h.net/v1
    api_key: ${UP_KEY}
models:
  fast: {upstream: up, model: m}
routes:
  auto: {default: fast}
"""
OPTIONAL = UPSTREAM.replace("api_key", "optional: true\n    api_key")
KEYS = "keys:\n  - {name: a, key: '${A_KEY}'}\n  - {name: b, key: '${B_KEY:-}'}\n"


def texts(runtime) -> str:
    return repr(runtime) + repr(runtime.notices)


@pytest.mark.parametrize("value", ["sk-secret\n", " sk-secret", "sk-secret\r\n", "\tsk-secret "])
def test_white_space_around_a_key_is_removed_with_a_notice(load_text, value):
    runtime = load_text(UPSTREAM, {"UP_KEY": value})
    assert runtime.upstreams["up"].api_key == "sk-secret"
    (notice,) = runtime.notices
    assert notice.where.endswith("routing.yaml:5: upstreams.up.api_key")
    assert notice.text == "white space around the key was removed"
    assert "secret" not in texts(runtime)


def test_white_space_around_gateway_keys_too(load_text):
    text = UPSTREAM + KEYS + "gateway: {admin_key: ' admin-secret'}\n"
    runtime = load_text(text, {"UP_KEY": "x", "A_KEY": "a-secret\n", "B_KEY": "b-secret\n"})
    assert [key.key for key in runtime.keys] == ["a-secret", "b-secret"]
    assert runtime.gateway.admin_key == "admin-secret"
    assert [notice.where.rpartition(": ")[2] for notice in runtime.notices] == [
        "gateway.admin_key",
        "keys[0].key",
        "keys[1].key",
    ]
    assert "secret" not in texts(runtime)


def test_a_key_without_white_space_gives_no_notice(load_text):
    assert load_text(UPSTREAM, {"UP_KEY": "sk-$ecret"}).notices == ()


@pytest.mark.parametrize("value", ["sk\nsecret", "sk\tsecret", "sk\x00secret", "sk\x7fsecret", "sk\xa0secret", "密"])
def test_a_character_that_no_header_carries_is_refused(refused, value):
    (problem,) = refused(UPSTREAM, {"UP_KEY": value})
    assert str(problem).endswith(":5: upstreams.up.api_key: has a control or non-ASCII character inside")


def test_an_unset_key_is_refused_by_name(refused):
    (problem,) = refused(UPSTREAM)
    assert str(problem).endswith(":5: upstreams.up.api_key: UP_KEY is not set")


@pytest.mark.parametrize("value", ["", " ", "\n"])
def test_an_empty_key_is_refused_by_name(refused, value):
    (problem,) = refused(UPSTREAM, {"UP_KEY": value})
    assert problem.message == "UP_KEY is empty"


def test_an_empty_default_and_a_written_empty_key_count_as_empty(refused):
    assert refused(UPSTREAM.replace("${UP_KEY}", "${UP_KEY:-}"))[0].message == "UP_KEY is empty"
    assert refused(UPSTREAM.replace("${UP_KEY}", "''"))[0].message == "the key is empty"


def test_no_key_at_all_is_fine(load_text):
    text = UPSTREAM.replace("    api_key: ${UP_KEY}\n", "")
    assert load_text(text).upstreams["up"].api_key is None
    assert load_text(UPSTREAM.replace("${UP_KEY}", "")).upstreams["up"].api_key is None


@pytest.mark.parametrize(("environ", "reason"), [({}, "UP_KEY is not set"), ({"UP_KEY": "\n"}, "UP_KEY is empty")])
def test_an_optional_upstream_is_off_and_says_why(load_text, environ, reason):
    runtime = load_text(OPTIONAL, environ)
    assert runtime.upstreams["up"].off == reason
    assert runtime.upstreams["up"].api_key is None
    assert f"off: {reason}" in [notice.text for notice in runtime.notices]
    assert runtime.models["fast"].upstream.off == reason


def test_an_optional_upstream_with_its_key_is_on(load_text):
    assert load_text(OPTIONAL, {"UP_KEY": "sk"}).upstreams["up"].off is None


def test_optional_may_come_from_a_variable_itself(load_text, refused):
    text = UPSTREAM.replace("api_key", "optional: ${OPT}\n    api_key")
    assert load_text(text, {"OPT": "true"}).upstreams["up"].off == "UP_KEY is not set"
    assert refused(text, {"OPT": "false"})[0].message == "UP_KEY is not set"


def test_any_variable_of_an_optional_upstream_counts(load_text):
    text = OPTIONAL.replace("https://h.net/v1", "[https://h.net, '${UP_URL}']")
    upstream = load_text(text).upstreams["up"]
    assert upstream.off == "UP_URL is not set, UP_KEY is not set"
    assert upstream.targets == ()


def test_an_optional_engine_without_its_variable_is_off(load_text):
    text = OPTIONAL.replace("base_url: https://h.net/v1", "engine: {checkpoint: '${CKPT}', port: '${PORT}'}")
    upstream = load_text(text, {"UP_KEY": "k"}).upstreams["up"]
    assert (upstream.off, upstream.engine) == ("CKPT is not set, PORT is not set", None)


def test_what_else_is_wrong_in_an_upstream_that_is_off_is_told(refused):
    (problem,) = refused(OPTIONAL.replace("optional:", "trust_env: 7\n    optional:"))
    assert problem.path == "upstreams.up.trust_env"


def test_an_empty_gateway_key_is_off_with_a_notice(load_text):
    runtime = load_text(UPSTREAM + KEYS, {"UP_KEY": "x", "A_KEY": "a"})
    assert [key.name for key in runtime.keys] == ["a"]
    (notice,) = runtime.notices
    assert notice.where.endswith(":12: keys[1].key")
    assert notice.text == "is empty: this key is off"


def test_an_unset_gateway_key_without_default_is_refused(refused):
    (problem,) = refused(UPSTREAM + KEYS, {"UP_KEY": "x"})
    assert (problem.path, problem.message) == ("keys[0].key", "A_KEY is not set")


def test_keys_that_are_all_off_do_not_open_the_gateway(load_text):
    runtime = load_text(UPSTREAM + KEYS.replace("${A_KEY}", "${A_KEY:-}"), {"UP_KEY": "x"})
    assert not runtime.open_to_all
    assert runtime.keys == ()
    assert runtime.notices[-1].text == "no key of the file is usable: only created keys are let in"


def leaves(value, path=()):
    """The path of every scalar in a tree."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield path
    else:
        for key, item in items:
            yield from leaves(item, (*path, key))


def replaced(value, path, new):
    """The tree with one leaf changed."""
    if not path:
        return new
    items = value.items() if isinstance(value, dict) else enumerate(value)
    changed = {key: replaced(item, path[1:], new) if key == path[0] else item for key, item in items}
    return changed if isinstance(value, dict) else list(changed.values())


EXAMPLE = parse(Path(__file__).with_name("design_example.yaml").read_bytes(), "routing.yaml").values


@pytest.mark.seconds
@pytest.mark.parametrize("value", ["(sk-s3cr3t", "http://u:s3cr3t@h?x"])
def test_a_secret_in_any_place_of_the_file_shows_in_no_text(tmp_path, value):
    """Whatever key a secret lands in by mistake, neither error nor notice repeats it."""
    file = tmp_path / "routing.yaml"
    for path in leaves(EXAMPLE):
        file.write_text(json.dumps(replaced(EXAMPLE, path, "${OOPS}")))
        try:
            runtime = load(file, {"OOPS": value, "TAOTOKEN_KEY": "k"})
        except ConfigError as error:
            told = str(error)
        else:
            told = " ".join(notice.text for notice in runtime.notices)
        assert "s3cr3t" not in told, (path, told)
