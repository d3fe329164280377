"""The limit stores as the contract suite opens them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from types import MappingProxyType

from gateway.config.redis_url import Address
from gateway.limits.memory import MemoryStore
from gateway.limits.redis import RedisStore
from gateway.limits.store import Store, StoreDown
from tests.fakes.redis import RedisServer

Open = Callable[[AsyncExitStack, RedisServer, float, float], Awaitable[Store]]
"""(what to close, a server, period, lease time) -> a store of its own."""

PATIENT = 10.0
"""Seconds for an answer where a slow machine is not what is tested."""
_names = itertools.count()


async def connected(store: RedisStore) -> RedisStore:
    """The store, connected: again and again, for on a busy machine a quarter of a second may not be enough."""
    async with asyncio.timeout(30.0):
        while True:
            with suppress(StoreDown):
                await store.connect()
                return store


async def memory(stack: AsyncExitStack, server: RedisServer, period: float, lease_seconds: float) -> Store:
    return MemoryStore(period, lease_seconds)


async def redis(stack: AsyncExitStack, server: RedisServer, period: float, lease_seconds: float) -> Store:
    limits = RedisStore(Address.parse(server.url), period, lease_seconds, f"{{test{next(_names)}}}", answer=PATIENT)
    stack.callback(limits.close)
    return await connected(limits)


OPENERS: Mapping[str, Open] = MappingProxyType({"memory": memory, "redis": redis})
