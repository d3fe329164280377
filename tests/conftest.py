"""Fixtures that every test may use. The markers' meaning is in pyproject.toml.

`scripts/test --fast` leaves out the marked tests: -m "not engine and not browser and not node and not slow".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes import Upstream

if TYPE_CHECKING:
    from tests.harness import Config, LocalGateway


settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")  # that it is slow, or busy, is no finding


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """A scripted upstream that answers by itself until it is given a script."""
    async with Upstream() as up:
        yield up


class StartGateway(Protocol):
    """What the fixture `gateway` is."""

    async def __call__(
        self, config: Config | Upstream, env: Mapping[str, str] | None = None, **options: Any
    ) -> LocalGateway: ...


@pytest.fixture
async def gateway() -> AsyncIterator[StartGateway]:
    """Starts local gateways that end with the test: `gw = await gateway(config)`, or `await gateway(upstream)`."""
    from tests.harness import LocalGateway, config_for  # not before a test needs it: unit tests start faster

    async with AsyncExitStack() as running:

        async def start(
            config: Config | Upstream, env: Mapping[str, str] | None = None, **options: Any
        ) -> LocalGateway:
            whole = config_for(config) if isinstance(config, Upstream) else config
            return await running.enter_async_context(LocalGateway(whole, env, **options))

        yield start
