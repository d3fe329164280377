"""Fixtures that every test may use. The markers' meaning is in pyproject.toml.

`scripts/test --fast` leaves out the marked tests: -m "not engine and not browser and not node and not slow".
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes import Upstream


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """A scripted upstream that answers by itself until it is given a script."""
    async with Upstream() as up:
        yield up
