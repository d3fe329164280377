"""What has been changed at run time, for commands that only read."""

from __future__ import annotations

import asyncio

from gateway.config import Runtime
from gateway.database import DatabaseDown, WrongUrl
from gateway.overrides import Changes, stored


def known_changes(runtime: Runtime) -> tuple[Changes, str | None]:
    """The changes that a gateway with this configuration has, and why they cannot be read."""
    try:
        return asyncio.run(stored(runtime)), None
    except (DatabaseDown, WrongUrl) as trouble:
        return Changes(), f"changes at run time cannot be read: {trouble}"
