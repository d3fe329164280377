"""Whether an upstream could answer now: for engines of our own, asked; for others, what the configuration knows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway import clock
from gateway.config.runtime import Model, Target, Upstream
from gateway.errors import UpstreamFailure
from gateway.upstream.client import fetch

LOOK_SECONDS = 2.0
_KNOWN_SECONDS = 10.0
"""For so long an engine counts as last seen. It is looked at every two seconds, and a look may take a few."""
_PROBE_SECONDS = 2.0
_WATCH_SECONDS = 10.0
_GAUGE = re.compile(
    rb"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc)(?:\{.*\})? ([0-9.eE+-]+)\r?$", re.MULTILINE
)

Spawn = Callable[[Coroutine[Any, Any, None]], object]


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine reports of its work."""

    running: float
    waiting: float
    """Requests, whoever sent them."""
    kv: float
    """Share of the KV cache in use, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at one engine."""

    at: float
    why: str | None
    """Why it is not ready."""
    listed: frozenset[str] = frozenset()
    """The model ids it lists."""
    load: Load | None = None
    down: bool = False
    """Nobody listens, or it says itself that it cannot work yet: no call could be answered. (One that is only slow to
    say how it is may be busy.)"""


class Health:
    """Remembers each look at an engine. Looks are small GETs: a health check never costs a generation."""

    def __init__(self, spawn: Spawn | None = None, every: float = LOOK_SECONDS, idle: float = _WATCH_SECONDS) -> None:
        """`spawn` runs the looks beside calls, `every` so many seconds, until for `idle` seconds no call has come."""
        self._spawn = spawn
        self._every, self._idle = every, idle
        self._seen: dict[Target, Seen] = {}
        self._wanted: dict[tuple[Target, ...], float] = {}
        """The engines that are being looked at, and when a call last wanted them."""

    async def why_not(self, model: Model) -> str | None:
        """Why a model cannot be used now; None: it can. Asks, unless that was done just now."""
        upstream = model.upstream
        if upstream.off is not None:
            return f"upstream '{upstream.name}' is off: {upstream.off}"
        if upstream.engine is None:
            return None
        if any(self._since(target, LOOK_SECONDS) is None for target in upstream.targets):
            await self._look(upstream)
        return self.known(model)

    def known(self, model: Model) -> str | None:
        """Why a model's engine should not be asked first, as last seen; None: nothing speaks against it."""
        upstream = model.upstream
        if upstream.engine is None:
            return None
        if upstream.targets in self._wanted:
            self._wanted[upstream.targets] = clock.now()  # calls that avoid it still want it back
        reasons = [_why_not(self.seen(target), model) for target in upstream.targets]
        return None if None in reasons else next(iter(reasons), None)

    def seen(self, target: Target) -> Seen | None:
        """The last look at an engine, unless that is long ago."""
        return self._since(target, _KNOWN_SECONDS)

    def _since(self, target: Target, seconds: float) -> Seen | None:
        seen = self._seen.get(target)
        return seen if seen is not None and clock.now() - seen.at < seconds else None

    def watch(self, upstream: Upstream) -> None:
        """A call wants this engine: look at it now and then, until no call has come for a while."""
        if upstream.targets not in self._wanted and self._spawn is not None:
            self._spawn(self._watch(upstream))
        self._wanted[upstream.targets] = clock.now()

    async def _watch(self, upstream: Upstream) -> None:
        try:
            while clock.now() - self._wanted[upstream.targets] < self._idle:
                await self._look(upstream)
                await asyncio.sleep(self._every)
        finally:
            del self._wanted[upstream.targets]
            for target in upstream.targets:
                self._seen.pop(target, None)

    async def _look(self, upstream: Upstream) -> None:
        looks = await asyncio.gather(*(_look(target, upstream) for target in upstream.targets))
        self._seen.update(zip(upstream.targets, looks, strict=True))


async def _look(target: Target, upstream: Upstream) -> Seen:
    """vLLM is up when `/health` says so; its models are those that it lists. Load matters where there is a choice."""
    now, key = clock.now, upstream.api_key
    root = target.url.removesuffix("/v1")
    try:
        status, _ = await fetch(root + "/health", key, seconds=_PROBE_SECONDS)
        if status != 200:
            return Seen(now(), f"its engine is not ready (health {status})", down=status >= 500)
        status, body = await fetch(f"{target.url}/models", key, seconds=_PROBE_SECONDS)
        rows = msgspec.json.decode(body)["data"] if status == 200 else []
        listed = frozenset(row["id"] for row in rows)
        if len(upstream.targets) == 1:
            return Seen(now(), None, listed)
        status, body = await fetch(root + "/metrics", key, seconds=_PROBE_SECONDS)
        return Seen(now(), None, listed, load_of(body) if status == 200 else None)
    except UpstreamFailure as failure:
        return Seen(now(), f"its engine does not answer ({failure.detail})", down=failure.cause == "connect")
    except (msgspec.DecodeError, KeyError, TypeError):
        return Seen(now(), "its engine's list of models cannot be read")


def load_of(exposition: bytes) -> Load | None:
    """The load in vLLM's /metrics, all engine cores of the replica together; None: it does not tell."""
    found: dict[bytes, list[float]] = {}
    for name, value in _GAUGE.findall(exposition):
        try:
            found.setdefault(name, []).append(float(value))
        except ValueError:
            return None
    if not found:
        return None
    kv = found.get(b"kv_cache_usage_perc", [0.0])
    running, waiting = (sum(found.get(name, ())) for name in (b"num_requests_running", b"num_requests_waiting"))
    return Load(running, waiting, max(kv))


def _why_not(seen: Seen | None, model: Model) -> str | None:
    if seen is None or seen.why is not None:
        return seen.why if seen is not None else None
    return None if seen.listed.intersection(model.ids) else "its engine does not list the model"
