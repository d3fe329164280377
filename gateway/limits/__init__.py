"""Admission: reserves requests, tokens, concurrency and budget for a call; settled exactly once at its end."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

STORES: Mapping[str, str] = MappingProxyType(
    {
        "memory": "gateway.limits.memory:MemoryStore",
        "redis": "gateway.limits.redis:RedisStore",
    }
)
"""Where limits can be kept; the contract suite runs over this table."""
