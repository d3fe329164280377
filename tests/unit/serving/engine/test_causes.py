from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from serving.engine.causes import CAUSES, Cause, table

DOCS = Path(__file__).resolve().parents[4] / "docs" / "serving" / "engines.md"


def test_the_names_differ() -> None:
    assert [name for name, count in Counter(cause.name for cause in CAUSES).items() if count > 1] == []


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_the_text_uses_every_group_that_the_pattern_captures(cause: Cause) -> None:
    used = {int(number) for number in re.findall(r"\\(\d)", cause.reason + cause.remedy)}
    assert used == set(range(1, cause.pattern.groups + 1))


def test_the_documentation_has_the_table() -> None:
    """When it does not: python -c "from serving.engine.causes import table; print(table())"."""
    assert table() in DOCS.read_text()
