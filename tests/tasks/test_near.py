"""Which texts are nearly the same."""

from __future__ import annotations

import pytest

from training.tasks.near import unlike

HELD_OUT = [{"text": "Please write the unit tests for this parser"}, {"text": "hey"}]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("please write the unit tests for this parser!", False),
        ("Please write unit tests for this parser", False),
        ("Hey :)", False),
        ("hey there, what is new", True),
        ("Please write the release notes for this parser's new version", True),
        ("???", True),
        ("", True),
    ],
)
def test_what_is_nearly_held_out_is_dropped(text: str, kept: bool) -> None:
    assert unlike([{"text": text}], HELD_OUT) == ([{"text": text}] if kept else [])
