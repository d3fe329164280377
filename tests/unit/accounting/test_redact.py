"""What must never be kept, and what stays readable."""

from __future__ import annotations

import pytest

from gateway.accounting.redact import redacted


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("use sk-proj-abcdefgh12345678 now", "use [key] now"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [key]"),
        ("password = hunter2222, TOKEN: 'abcdefgh'", "password = [key], TOKEN: '[key]'"),
        ('{"api_key":"abcdefgh"}', '{"api_key":"[key]"}'),
        ("postgres://user:pw@host/db", "postgres://user:[key]@host/db"),
        ("AKIAIOSFODNN7EXAMPLE in a line", "[key] in a line"),
        ("sum 3f786850e387550fdab836ed7e6dc881de23001b.", "sum [key]."),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- end", "[private key] end"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "[private key]"),
        ("write to a.b+c@mail.example.co.uk!", "write to [email]!"),
        ("我的邮箱是me@例子.cn或me@example.cn，谢谢", "我的邮箱是me@例子.cn或[email]，谢谢"),
        ("card 4111 1111 1111 1111, 5500-0000-0000-0004", "card [card], [card]"),
        ("call +49 170 1234567 or (415) 555-2671", "call [phone] or [phone]"),
        ("电话13812345678好", "电话[phone]好"),
    ],
)
def test_is_taken_out(text: str, left: str) -> None:
    assert redacted(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "def reverse(s): return s[::-1]",
        "at 2026-11-30T12:30:45 the 1,234,567 items of 10.0.0.1 in v1.2.3",
        "order 1234567890123456 has no check digit of a card",
        "a-very-long-name-of-a-module-without-digits-in-it and CamelCaseNamesAreLongButFineToo",
        "重构这个函数，让它支持异步",
        "the token limit is 4096, the secret of a good cake",
    ],
)
def test_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("part", ["a-", "1 ", "a@", "eyJ", "-----BEGIN PRIVATE KEY-----", "12345678", "+1 (", "://a:"])
def test_no_text_takes_more_than_its_length(part: str) -> None:
    """Patterns that backtrack would not end within the test's time."""
    redacted(part * (1_000_000 // len(part)))
