"""All upstreams of the gateway: connections, breakers, looks at engines, model ids. They outlive a configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from structlog.typing import FilteringBoundLogger

from gateway.call import ENDPOINTS
from gateway.clock import Tasks
from gateway.config.runtime import Model, Runtime, Target, Upstream
from gateway.upstream import request
from gateway.upstream.breaker import CLOSED, HALF_OPEN, OPEN, Breakers, Group
from gateway.upstream.catalog import Catalog
from gateway.upstream.client import Client, ProxiedClient
from gateway.upstream.health import SCRAPE_SECONDS, Health, Seen
from gateway.upstream.pool import PoolLimits, Pools
from gateway.upstream.replicas import Door, Replicas
from gateway.upstream.retry import Retries
from gateway.upstream.walk import Walker

Labels = tuple[str, ...]
WORDS: Mapping[int, str] = MappingProxyType({CLOSED: "closed", HALF_OPEN: "half-open", OPEN: "open"})


class Fleet:
    """The upstream stage's lasting part; `configure` makes the stage of one configuration."""

    def __init__(self, tasks: Tasks, log: FilteringBoundLogger, limits: PoolLimits, look_seconds: float) -> None:
        self.breakers = Breakers()
        self.health = Health(tasks.spawn, look_seconds)
        self.catalog = Catalog(log)
        self._tasks, self._limits = tasks, limits
        self._pools = Pools(limits)
        self._proxied: dict[tuple[Target, str], ProxiedClient] = {}
        self._upstreams: Mapping[str, Upstream] = {}
        """As the file has them: with the replicas that are drained."""
        self._resolving: list[asyncio.Task[None]] = []

    def configure(self, runtime: Runtime, written: Runtime) -> Walker:
        """The stage of a configuration; `written`: the same as its file says, without changes at run time."""
        self._upstreams = written.upstreams
        models = [m for m in runtime.models.values() if m.upstream.off is None]
        settings = runtime.gateway
        groups = self.breakers.configure(models, settings.breaker_failures, settings.breaker_open_seconds)
        return Walker(
            {m.name: self._replicas(m.upstream, groups[m.name]) for m in models},
            Retries(m.upstream.name for m in models),
            lambda attempt: self.catalog.id_of(attempt.model),
            self.catalog.doubt,
        )

    def _replicas(self, upstream: Upstream, group: Group) -> Replicas:
        doors = [self._door(upstream, target) for target in upstream.targets]
        watch = partial(self.health.watch, upstream) if upstream.engine is not None else None
        return Replicas(doors, group, self.health.seen, watch)

    def _door(self, upstream: Upstream, target: Target) -> Door:
        heads: dict[str, bytes] = {e.name: request.head(target, e.path, upstream.api_key) for e in ENDPOINTS.values()}
        return Door(target, self._client(target, upstream.proxy), heads)

    def _client(self, target: Target, proxy: str | None) -> Client:
        if proxy is None:
            return self._pools.get(target)
        client = self._proxied.get((target, proxy))
        if client is None:
            client = self._proxied[target, proxy] = ProxiedClient(
                target, proxy, self._limits, self._pools.context(target)
            )
        return client

    def forget_others(self) -> None:
        """Close the connections to what the configuration no longer names; answers on them still end."""
        named = {(t, u.proxy) for u in self._upstreams.values() for t in u.targets}
        self._pools.keep(frozenset(target for target, proxy in named if proxy is None))
        for key in self._proxied.keys() - named:
            self._proxied.pop(key).retire()

    def resolve(self, runtime: Runtime) -> asyncio.Task[None]:
        """Find out, beside everything else, which of a model's ids its upstream has; the task that does."""
        for task in self._resolving:
            task.cancel()
        models = runtime.models.values()
        first = self._tasks.spawn(self.catalog.resolve(models))
        self._resolving = [first, self._tasks.spawn(self.catalog.keep(models))]
        return first

    async def close(self) -> None:
        """Close all connections."""
        self._pools.close()
        await asyncio.gather(*(client.aclose() for client in self._proxied.values()))

    # -- what is known of it

    def why_not(self, model: Model) -> str | None:
        """Why a model should not be asked first now, as far as is known; None: it can be."""
        return self.breakers.why_not(model) or self.health.known(model)

    def busy(self) -> Mapping[str, int]:
        """Upstream -> requests under way."""
        used = [u for u in self._upstreams.values() if u.off is None]
        return {u.name: sum(self._client(t, u.proxy).busy for t in u.targets) for u in used}

    def beside(self, upstream: Upstream) -> int:
        """Calls under way at each of an upstream's replicas, on average."""
        return round(sum(self._client(t, upstream.proxy).busy for t in upstream.targets) / len(upstream.targets))

    def replicas_busy(self) -> Mapping[Labels, float]:
        """(upstream, replica) -> requests under way."""
        return {(u.name, place): self._client(t, u.proxy).busy for u, place, t in self._all()}

    def replica_breakers(self) -> Mapping[Labels, float]:
        """(upstream, replica, model) -> CLOSED, HALF_OPEN or OPEN."""
        places = {(upstream.name, target): place for upstream, place, target in self._all()}
        return {
            (upstream, places[upstream, target], model): state
            for (upstream, model, target), state in self.breakers.each().items()
        }

    def watch(self, seconds: float = SCRAPE_SECONDS) -> None:
        """Somebody wants to know how all engines are, for so long."""
        for upstream in self._upstreams.values():
            if upstream.engine is not None:
                self.health.watch(upstream, seconds)

    def engines(self) -> Mapping[str, Mapping[Labels, float]]:
        """Figure -> (upstream, replica) -> its value, of those engines that were looked at lately."""
        found: dict[str, dict[Labels, float]] = {}
        for upstream, place, target in self._all():
            seen = self.health.seen(target) if upstream.engine is not None else None
            for name, value in _figures(seen).items() if seen is not None else ():
                found.setdefault(name, {})[upstream.name, place] = value
        return found

    def engine(self, target: Target) -> dict[str, Any] | None:
        """One engine as the operations page has it; None: nobody has looked lately."""
        seen = self.health.seen(target)
        if seen is None:
            return None
        load = seen.load
        return {
            "ready": seen.why is None,
            "why": seen.why,
            "running": load and load.running,
            "waiting": load and load.waiting,
            "kv": load and load.kv,
            "acceptance_length": seen.acceptance_length,
            "version": seen.version or None,
        }

    def _all(self) -> Iterator[tuple[Upstream, str, Target]]:
        for upstream in self._upstreams.values():
            if upstream.off is None:
                for place, target in enumerate(upstream.targets):
                    yield upstream, str(place), target


def _figures(seen: Seen) -> dict[str, float]:
    load, acceptance = seen.load, seen.acceptance_length
    figures = {"up": float(seen.why is None)}
    if load is not None:
        figures |= {"running": load.running, "waiting": load.waiting, "kv_cache_usage": load.kv}
    return figures if acceptance is None else figures | {"acceptance_length": acceptance}
