"""Secrets and personal data taken out of text. In doubt something is taken out: the text is for people to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import re2


class _Kind(NamedTuple):
    """What is replaced by `[name]`."""

    name: str
    pattern: str
    """RE2, so in time that only grows with the text. Of its first group only that is replaced, if it has one."""
    holds: Callable[[str], bool] = lambda found: True
    """Whether something that fits is meant."""


def _is_card(found: str) -> bool:
    """The check digit of payment cards (Luhn) is right."""
    digits = [int(d) for d in found if d.isdigit()]
    doubled = [d if place % 2 == 0 else 2 * d - 9 * (d > 4) for place, d in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


def _is_random(found: str) -> bool:
    """Letters and digits mixed: no word, no number."""
    return any(c.isdigit() for c in found) and any(c.isalpha() for c in found)


_KINDS = (
    _Kind("private key", r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)"),
    _Kind("key", r"(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{8,})"),
    _Kind("key", r"(?i)(?:password|passwd|secret|token|api[_-]?key)[\"']?\s*[:=]\s*[\"']?([^\s\"',;]{6,})"),
    _Kind("key", r"://[^\s/:@]*:([^\s/@]+)@"),
    _Kind("key", r"\b(?:sk|pk|rk|tk|ghp|gho|ghu|ghs|github_pat|glpat|xox[a-z]|hf|npm|pypi)[-_][A-Za-z0-9_-]{10,}"),
    _Kind("key", r"\b(?:AKIA|ASIA|AIza|eyJ)[A-Za-z0-9_.-]{12,}"),
    _Kind("key", r"\b[A-Za-z0-9_-]{32,}\b", _is_random),
    _Kind("email", r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"),
    _Kind("card", r"\b\d(?:[ -]?\d){12,18}\b", _is_card),
    _Kind("phone", r"\+\d{1,3}[ .-]?(?:\(\d{1,5}\)[ .-]?)?\d(?:[ .-]?\d){5,12}\b"),
    _Kind("phone", r"\b1[3-9]\d(?:[ -]?\d{4}){2}\b"),
    _Kind("phone", r"(?:\b\d{3}|\(\d{3}\))[ .-]\d{3}[ .-]\d{4}\b"),
)


def redacted(text: str) -> str:
    """`text` with keys, mail addresses, card and telephone numbers replaced by `[key]` and the like."""
    for kind in _KINDS:
        text = re2.sub(kind.pattern, lambda match, kind=kind: _replaced(match, kind), text)
    return text


def _replaced(match: Any, kind: _Kind) -> str:
    whole: str = match.group(0)
    if not kind.holds(whole):
        return whole
    if not match.re.groups:
        return f"[{kind.name}]"
    start, end = match.start(1) - match.start(0), match.end(1) - match.start(0)
    return f"{whole[:start]}[{kind.name}]{whole[end:]}"
