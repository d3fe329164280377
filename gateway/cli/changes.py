"""What has been changed at run time, for commands that only read."""

from __future__ import annotations

import asyncio

from gateway.changes import Changes
from gateway.config import ConfigError, Problem, Runtime
from gateway.database import DatabaseDown, WrongUrl, locate
from gateway.overrides import stored


def check_database(runtime: Runtime) -> None:
    """Raises ConfigError for a database that cannot be named so."""
    try:
        locate(runtime.gateway.database_url, runtime.file.parent)
    except WrongUrl as wrong:
        raise ConfigError([Problem(str(runtime.file), None, "gateway.database_url", str(wrong))]) from None


def known_changes(runtime: Runtime) -> tuple[Changes, str | None]:
    """The changes that a gateway with this configuration has, and why they cannot be read."""
    try:
        file = locate(runtime.gateway.database_url, runtime.file.parent).file
        if file is not None and not file.exists():
            return Changes(), None  # to look would make one
        return asyncio.run(stored(runtime)), None
    except (DatabaseDown, WrongUrl) as trouble:
        return Changes(), f"changes at run time cannot be read: {trouble}"
