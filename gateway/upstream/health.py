"""Whether an upstream could answer now: for engines of our own, asked; for others, what the configuration knows."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gateway import clock
from gateway.config.runtime import Model, Target, Upstream
from gateway.errors import UpstreamFailure
from gateway.upstream.client import fetch

LOOK_SECONDS = 2.0
KNOWN_SECONDS = 10.0
"""For so long an engine counts as last seen. It is looked at every two seconds, and a look may take a few."""
_PROBE_SECONDS = 2.0
CALL_SECONDS = 10.0
"""For so long after a call engines are looked at."""
SCRAPE_SECONDS = 120.0
"""The same after a scrape: the next one wants to know as well."""
DRAFT_SECONDS = 60.0
"""Of the last minute is the acceptance length told."""
_GAUGE = re.compile(
    rb"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc|spec_decode_num_drafts_total"
    rb"|spec_decode_num_accepted_tokens_total)(?:\{.*\})? ([0-9.eE+-]+)\r?$",
    re.MULTILINE,
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
    drafts: float = 0.0
    """Speculations since the engine's start."""
    accepted: float = 0.0
    """Tokens of them that were accepted."""


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
    acceptance_length: float | None = None
    """Mean tokens of one step with a draft; None: there was no draft."""
    version: str | None = None
    """vLLM's own; None: it does not tell."""


class Drafts:
    """What one engine has told of its speculations in the last DRAFT_SECONDS."""

    def __init__(self) -> None:
        self._told: deque[tuple[float, Load]] = deque()

    def acceptance_length(self, at: float, load: Load) -> float | None:
        """Of what was drafted lately; since the engine's start where nothing was."""
        if self._told and load.drafts < self._told[-1][1].drafts:  # it has been started anew
            self._told.clear()
        self._told.append((at, load))
        while len(self._told) > 2 and self._told[1][0] <= at - DRAFT_SECONDS:
            self._told.popleft()
        first = self._told[0][1]
        drafts, accepted = load.drafts - first.drafts, load.accepted - first.accepted
        if not drafts:
            drafts, accepted = load.drafts, load.accepted
        return 1 + accepted / drafts if drafts else None


@dataclass(slots=True)
class _Wish:
    """Somebody wants to know how an engine is."""

    until: float
    api_key: str | None


class Health:
    """Remembers each look at an engine. Looks are small GETs: a health check never costs a generation."""

    def __init__(self, spawn: Spawn | None = None, every: float = LOOK_SECONDS, idle: float = CALL_SECONDS) -> None:
        """`spawn` runs the looks beside calls, `every` so many seconds, until for `idle` seconds no call has come."""
        self._spawn = spawn
        self._every, self._idle = every, idle
        self._seen: dict[Target, Seen] = {}
        self._drafts: dict[Target, Drafts] = {}
        self._wanted: dict[Target, _Wish] = {}
        """The engines that are being looked at."""

    async def why_not(self, model: Model, within: float = LOOK_SECONDS) -> str | None:
        """Why a model cannot be used now; None: it can. Asks, unless that was done `within` so many seconds."""
        upstream = model.upstream
        if upstream.off is not None:
            return f"upstream '{upstream.name}' is off: {upstream.off}"
        if upstream.engine is None:
            return None
        if any(self._since(target, within) is None for target in upstream.targets):
            await asyncio.gather(*(self._look(target, upstream.api_key) for target in upstream.targets))
        return self.known(model)

    def known(self, model: Model) -> str | None:
        """Why a model's engine should not be asked first, as last seen; None: nothing speaks against it."""
        upstream = model.upstream
        if upstream.engine is None:
            return None
        until = clock.now() + self._idle
        for target in upstream.targets:
            if (wish := self._wanted.get(target)) is not None:
                wish.until = max(wish.until, until)  # calls that avoid it still want it back
        reasons = [_why_not(self.seen(target), model) for target in upstream.targets]
        return None if None in reasons else next(iter(reasons), None)

    def seen(self, target: Target) -> Seen | None:
        """The last look at an engine, unless that is long ago."""
        return self._since(target, KNOWN_SECONDS)

    def _since(self, target: Target, seconds: float) -> Seen | None:
        seen = self._seen.get(target)
        return seen if seen is not None and clock.now() - seen.at < seconds else None

    def watch(self, upstream: Upstream, seconds: float | None = None) -> None:
        """A call wants this engine, or somebody wants to know how it is: look at it now and then, for so many seconds
        (None: as long as after a call)."""
        if self._spawn is None:
            return
        until = clock.now() + (self._idle if seconds is None else seconds)
        for target in upstream.targets:
            wish = self._wanted.get(target)
            if wish is None:
                self._wanted[target] = _Wish(until, upstream.api_key)
                self._spawn(self._watch(target, self._wanted[target]))
            else:
                wish.until, wish.api_key = max(wish.until, until), upstream.api_key

    async def _watch(self, target: Target, wish: _Wish) -> None:
        try:
            while clock.now() < wish.until:
                await self._look(target, wish.api_key)
                await asyncio.sleep(self._every)
        finally:
            for known in (self._wanted, self._seen, self._drafts):
                known.pop(target, None)

    async def _look(self, target: Target, api_key: str | None) -> None:
        before = self._seen.get(target)
        seen = await _look(target, api_key, before.version if before is not None and before.why is None else None)
        if seen.load is not None:
            drafts = self._drafts.setdefault(target, Drafts())
            seen = replace(seen, acceptance_length=drafts.acceptance_length(seen.at, seen.load))
        self._seen[target] = seen


async def _look(target: Target, key: str | None, version: str | None) -> Seen:
    """vLLM is up when `/health` says so; its models are those that it lists. Its version is asked once."""
    now = clock.now
    root = target.url.removesuffix("/v1")
    try:
        status, _ = await fetch(root + "/health", key, seconds=_PROBE_SECONDS)
        if status != 200:
            return Seen(now(), f"its engine is not ready (health {status})", down=status >= 500)
        status, body = await fetch(f"{target.url}/models", key, seconds=_PROBE_SECONDS)
        rows = msgspec.json.decode(body)["data"] if status == 200 else []
        listed = frozenset(row["id"] for row in rows)
        if version is None:
            version = _version(*await fetch(root + "/version", key, seconds=_PROBE_SECONDS))
        status, body = await fetch(root + "/metrics", key, seconds=_PROBE_SECONDS)
        return Seen(now(), None, listed, load_of(body) if status == 200 else None, version=version)
    except UpstreamFailure as failure:
        return Seen(now(), f"its engine does not answer ({failure.detail})", down=failure.cause == "connect")
    except (msgspec.DecodeError, KeyError, TypeError):
        return Seen(now(), "its engine's list of models cannot be read")


class _Version(msgspec.Struct):
    version: str = ""


def _version(status: int, body: bytes) -> str:
    """What vLLM says at /version; empty where it does not."""
    try:
        return msgspec.json.decode(body, type=_Version).version[:50] if status == 200 else ""
    except msgspec.DecodeError:
        return ""


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
    counted = (b"num_requests_running", b"num_requests_waiting")
    drafted = (b"spec_decode_num_drafts_total", b"spec_decode_num_accepted_tokens_total")
    running, waiting, drafts, accepted = (sum(found.get(name, ())) for name in (*counted, *drafted))
    return Load(running, waiting, max(kv), drafts, accepted)


def _why_not(seen: Seen | None, model: Model) -> str | None:
    if seen is None or seen.why is not None:
        return seen.why if seen is not None else None
    return None if seen.listed.intersection(model.ids) else "its engine does not list the model"
