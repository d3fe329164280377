"""The limit stores as the contract suite opens them."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType

from gateway.limits.memory import MemoryStore
from gateway.limits.store import Store
from tests.fakes.redis import RedisServer

Open = Callable[[AsyncExitStack, RedisServer, float, float], Awaitable[Store]]
"""(what to close, a server, period, lease time) -> a store of its own."""

_names = itertools.count()


async def memory(stack: AsyncExitStack, server: RedisServer, period: float, lease_seconds: float) -> Store:
    return MemoryStore(period, lease_seconds)


OPENERS: Mapping[str, Open] = MappingProxyType({"memory": memory})
