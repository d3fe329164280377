"""What several of the wire tests need."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes import Upstream


@pytest.fixture
async def second() -> AsyncIterator[Upstream]:
    """Another scripted upstream, to fall back to."""
    async with Upstream() as up:
        yield up
