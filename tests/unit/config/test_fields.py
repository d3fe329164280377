"""The value types of the schema."""

from __future__ import annotations

import math

import pytest
from pydantic import TypeAdapter, ValidationError

from gateway.config import fields


class Timings(fields.Section):
    """A section for these tests."""

    total: fields.Seconds = 5
    name: fields.Name = "x"


def read(kind, value):
    return TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (fields.Flag, True, True),
        (fields.Flag, "false", False),
        (fields.Flag, "TRUE", True),
        (fields.Whole, "8", 8),
        (fields.Whole, 8.0, 8),
        (fields.Seconds, 0.5, 0.5),
        (fields.Seconds, "5", 5.0),
        (fields.Port, 65535, 65535),
        (fields.Count, 5, 5),
        (fields.Count, "5", 5),
        (fields.Count, "300M", 300_000_000),
        (fields.Count, "1.5k", 1500),
        (fields.Count, "2 B", 2_000_000_000),
        (fields.Listed, "a", ("a",)),
        (fields.Listed, ["a", "b"], ("a", "b")),
        (fields.MaybeListed, [], ()),
        (fields.Regex, r"(?i)\bsql\b", r"(?i)\bsql\b"),
        (fields.Metrics, "open", "open"),
        (fields.Metrics, 9090, 9090),
        (fields.Metrics, "9090", 9090),
        (
            fields.Origins,
            ["https://app.example:8443", "http://localhost"],
            ("https://app.example:8443", "http://localhost"),
        ),
        (fields.Origins, "*", ("*",)),
        (fields.Networks, ["10.0.0.0/8", "::1"], ("10.0.0.0/8", "::1")),
        (fields.Name, "moonshot/kimi-k2.5:free", "moonshot/kimi-k2.5:free"),
    ],
)
def test_what_is_taken(kind, written, value):
    assert read(kind, written) == value


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (fields.Flag, 1),
        (fields.Flag, "yes"),
        (fields.Flag, None),
        (fields.Whole, True),
        (fields.Whole, 1.5),
        (fields.Whole, "x"),
        (fields.Positive, 0),
        (fields.Seconds, 0),
        (fields.Seconds, False),
        (fields.Rate, -0.1),
        (fields.Dollars, 0),
        (fields.Port, 0),
        (fields.Port, 65536),
        (fields.Count, "300X"),
        (fields.Count, "0"),
        (fields.Count, True),
        (fields.Count, 1.5),
        (fields.Listed, []),
        (fields.Listed, ""),
        (fields.Listed, [1]),
        (fields.Listed, {"a": 1}),
        (fields.Regex, "("),
        (fields.Regex, r"(?=a)"),
        (fields.Regex, r"(a)\1"),
        (fields.Metrics, "close"),
        (fields.Metrics, 0),
        (fields.Metrics, True),
        (fields.Origins, "app.example"),
        (fields.Origins, "https://app.example/"),
        (fields.Networks, "10.0.0.0/40"),
        (fields.Networks, "proxy.internal"),
        (fields.Name, "two words"),
        (fields.Name, ""),
        (fields.Name, "名"),
        (fields.Name, "x" * 129),
    ],
)
def test_what_is_refused(kind, written):
    with pytest.raises(ValidationError):
        read(kind, written)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_of_a_section_are_finite(number):
    with pytest.raises(ValidationError):
        Timings(total=number)


def test_a_null_in_a_section_is_absent():
    assert Timings.model_validate({"total": None}) == Timings()


def test_an_unknown_key_is_refused_even_without_a_value():
    with pytest.raises(ValidationError, match="Extra inputs"):
        Timings.model_validate({"totl": None})


def test_a_section_cannot_be_changed():
    with pytest.raises(ValidationError):
        Timings().total = 6


def test_re2_writes_nothing_of_its_own(capfd):
    with pytest.raises(ValidationError):
        read(fields.Regex, "(?<=x)")
    assert capfd.readouterr().err == ""
