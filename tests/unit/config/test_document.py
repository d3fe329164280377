"""YAML with positions, and what is refused in it."""

from __future__ import annotations

import pytest

from gateway.config import ConfigError
from gateway.config.document import MAX_NODES, parse


def read(text: str):
    return parse(text.encode(), "routing.yaml")


def told(text: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text.encode() if isinstance(text, str) else text, "routing.yaml")
    return str(caught.value)


def test_values_and_lines():
    document = read("# a comment\na: 1\nb:\n  - x: true\n  - [1.5, null, 'text']\nc: {d: 0x1F}\n")
    assert document.values == {"a": 1, "b": [{"x": True}, [1.5, None, "text"]], "c": {"d": 31}}
    lines = document.source.lines
    assert lines[("a",)] == 2
    assert lines[("b", 0, "x")] == 4
    assert lines[("b", 1, 2)] == 5
    assert lines[("c", "d")] == 6
    assert document.findings == ()


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("2026-11-30", "2026-11-30"),
        ("'8080'", "8080"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        ("~", None),
        ("1e3", 1000.0),
        ("true", True),
    ],
)
def test_scalars_are_those_of_yaml_1_2(written, value):
    assert read(f"a: {written}").values == {"a": value}


def test_keys_are_always_text():
    assert read("1: x\ntrue: y\n").values == {"1": "x", "true": "y"}


def test_anchors_are_understood():
    document = read("a: &x {b: 1}\nc: *x\n")
    assert document.values == {"a": {"b": 1}, "c": {"b": 1}}


def test_a_byte_order_mark_and_windows_line_ends():
    assert parse(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "f").source.lines[("b",)] == 2


def test_a_duplicate_is_found_with_both_lines():
    document = read("a: 1\nb: 2\na: 3\n")
    (finding,) = document.findings
    assert (finding.path, finding.message) == (("a",), "given twice, first in line 1")
    assert document.source.problem(finding).line == 3


def test_a_duplicate_deep_inside():
    (finding,) = read("m:\n  fast: {model: a, model: b}\n").findings
    assert finding.path == ("m", "fast", "model")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !secret x", "YAML tags such as !secret are not supported"),
        ("a: !!python/object:os.system {}", "not supported"),
        ("a: !!set {x}", "not supported"),
        ("a: !!int x", "does not fit its YAML tag"),
        ("base: &b {x: 1}\na: {<<: *b}", "merge keys"),
        ("a: {'${X}': 1}", "references are substituted in values, not in keys"),
        ("? [1, 2]\n: x", "a key must be plain text"),
        ("~: x", "a key must be plain text"),
    ],
)
def test_what_is_not_supported_is_a_finding(text, message):
    assert [finding.message for finding in read(text).findings if message in finding.message]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: c: d\n", "routing.yaml:2: not valid YAML: mapping values are not allowed here"),
        ("a: [1, 2\nb: 3\n", "routing.yaml:2: not valid YAML"),
        ("a: 'x\n", "routing.yaml:2: not valid YAML: found unexpected end of stream"),
        ("a:\n\tb: 1\n", "routing.yaml:2: not valid YAML: found character '\\t'"),
        ("a: 1\n---\nb: 2\n", "routing.yaml:2: not valid YAML: but found another document"),
        ("a: 1\nb: \x00\n", "routing.yaml:2: not valid YAML: a character that YAML does not allow"),
        ("a: *nobody\n", "routing.yaml:1: not valid YAML: found undefined alias 'nobody'"),
        ("a: {b: ${X}}\n", "a ${...} inside {} or [] must be in quotes"),
        ("a: &x [*x]\n", "an alias that expands without end"),
        ("", "routing.yaml: the file is empty, `turnout init` writes one"),
        ("# only a comment\n", "the file is empty"),
        ("- a\n", "routing.yaml:1: the file must be a mapping"),
        ("text\n", "the file must be a mapping"),
        (b"a: 1\nb: \xff\n", "routing.yaml:2: the file is not UTF-8"),
        ("[" * 700, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text, message):
    assert message in told(text)


def test_aliases_that_multiply_are_stopped():
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert MAX_NODES < 10**8
    assert "expands without end" in told("\n".join(["a0: &a0 x", *levels]))


def test_a_syntax_error_does_not_quote_the_line():
    assert "sk-secret" not in told("api_key: sk-secret: x\n")
