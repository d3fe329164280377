"""Reads lexicon.txt: word -> its class, with the inflections of English words."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).with_name("lexicon.txt")


def inflections(word: str) -> dict[str, str]:
    """Form -> ending: `fixed` -> `.ed`; the plain form and the one in -s have none."""
    stem = word[:-1] if word.endswith("e") else word
    forms = {word + "s": "", word + "es": "", stem + "ed": ".ed", stem + "ing": ".ing", word: ""}
    if word.endswith("y"):
        forms |= {word[:-1] + "ies": "", word[:-1] + "ied": ".ed"}
    if len(word) < 7 and word[-1] in "bgmnprt" and word[-2] in "aeiou":
        forms |= {word + word[-1] + "ed": ".ed", word + word[-1] + "ing": ".ing"}
    return forms


def lexicon() -> dict[str, str]:
    """Word, or two words with a space between -> `@class`; the class that is named first wins."""
    found: dict[str, str] = {}
    exact: dict[str, str] = {}
    for line in FILE.read_text(encoding="utf8").splitlines():
        if line.startswith("#"):
            continue
        kind, listed = line.split(":", 1)
        for word in listed.split():
            word = word.replace("_", " ")
            exact.setdefault(word, "@" + kind)
            if word.isascii() and word.isalpha() and len(word) > 2:
                for form, ending in inflections(word).items():
                    found.setdefault(form, f"@{kind}{ending}")
    return found | exact
