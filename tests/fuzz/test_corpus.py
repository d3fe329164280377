"""Every kept input still holds its target's promises: what a fuzz run found once, it need not find again."""

from __future__ import annotations

import pytest

from tests.fuzz import CORPUS, TARGETS, load

LIMIT = 300 * 1024
"""Bytes of all corpora together."""


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus(name: str) -> None:
    target = load(name)
    kept = sorted(file.read_bytes() for file in (CORPUS / name).iterdir())
    assert kept, "no corpus"
    for data in {*target.SEEDS, *kept}:
        try:
            target.fuzz(data)
        except Exception as error:
            error.add_note(f"the input: {data!r}")
            raise


def test_the_corpora_stay_small() -> None:
    assert sum(file.stat().st_size for file in CORPUS.rglob("*") if file.is_file()) < LIMIT
