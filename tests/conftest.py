"""Fixtures that every test may use. The markers' meaning is in pyproject.toml.

`scripts/test --fast` leaves out the marked tests: -m "not engine and not browser and not node and not slow".
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes import Upstream

if TYPE_CHECKING:
    from tests.harness import Config, LocalGateway


ROOT = Path(__file__).parents[1]

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")  # that it is slow, or busy, is no finding


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """A scripted upstream that answers by itself until it is given a script."""
    async with Upstream() as up:
        yield up


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with all tables and no rows: to make one takes longer than most tests."""
    folder = tmp_path_factory.mktemp("tables")
    told = json.dumps(["sqlite:///made.db", str(folder)])
    subprocess.run([sys.executable, "-m", "gateway.migrations"], input=told, text=True, check=True, cwd=ROOT)
    return folder / "made.db"


@pytest.fixture
def tables_here(tables: Path, tmp_path: Path) -> None:
    """Databases with tables in the test's folder, by the names that tests use."""
    for name in ("t.db", "turnout.db"):
        shutil.copy(tables, tmp_path / name)


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
