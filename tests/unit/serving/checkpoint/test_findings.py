"""One line for people."""

from __future__ import annotations

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.findings import Finding, amount, some


def test_a_finding_is_one_line() -> None:
    assert str(Finding("error", "x", "it is cut off", "a.safetensors", "copy it")) == (
        "it is cut off [a.safetensors]; copy it"
    )
    assert str(Finding("ok", "x", "fine")) == "fine"


def test_nothing_in_a_file_forges_a_line_or_moves_the_cursor() -> None:
    finding = Finding("note", "x", "dtype a\nok: it serves", "b\x1b[8m", "c\u202e\r")
    assert str(finding) == "dtype a?ok: it serves [b?[8m]; c??"
    assert str(CheckpointError("a\n", "b\x1b", "c\t")) == "a?: b?; c?"


def test_amounts_have_three_digits_and_a_prefix() -> None:
    assert [amount(n) for n in (0, 999, 1000, 4_480_000, 1.03e12, 5e15)] == [
        "0 B",
        "999 B",
        "1 kB",
        "4.48 MB",
        "1.03 TB",
        "5e+03 TB",
    ]
    assert amount(671e9, "") == "671 G"


def test_three_are_named() -> None:
    assert some(["a"]) == "a"
    assert some(list("abc")) == "a, b, c"
    assert some(list("abcde")) == "a, b, c and 2 more"
