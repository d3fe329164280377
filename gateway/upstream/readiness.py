"""Whether the gateway can serve: at least one model of each route is usable, and it is not shutting down."""

from __future__ import annotations

from collections.abc import Callable

from gateway.config.runtime import Model, Runtime
from gateway.upstream.health import LOOK_SECONDS, Health

NOTICE_SECONDS = 2.0
"""Between a signal and the closing of the listener, where a load balancer asks for readiness."""


class Readiness:
    """What `/health/ready` tells."""

    def __init__(
        self, health: Health, runtime: Callable[[], Runtime], why_never: Callable[[Model], str | None]
    ) -> None:
        """`runtime`: the configuration in force; `why_never`: why an operator has closed a model."""
        self._health, self._runtime, self._why_never = health, runtime, why_never
        self._balanced = False
        """Somebody asks for readiness."""
        self._draining = False

    async def asked(self) -> dict[str, dict[str, str]]:
        """`unusable`, for a load balancer."""
        self._balanced = True
        return await self.unusable(LOOK_SECONDS)

    async def unusable(self, within: float) -> dict[str, dict[str, str]]:
        """Route -> model -> why not, for each route without a single usable model. Engines that nobody has looked at
        `within` so many seconds are looked at now."""
        if self._draining:
            return {"*": {"*": "the gateway is shutting down"}}
        runtime = self._runtime()
        wanted = {r.name: (r.default, *r.fallback) for r in runtime.routes.values()} or {"": tuple(runtime.models)}
        missing = {}
        for route, names in wanted.items():
            models = [runtime.models[name] for name in names]
            reasons = {m.name: self._why_never(m) or await self._health.why_not(m, within) for m in models}
            if None not in reasons.values():
                missing[route] = {name: why for name, why in reasons.items() if why is not None}
        return missing

    def drain(self) -> float:
        """From now on not ready. Seconds for which new connections are still wanted: a load balancer that asks for
        readiness has to see it first."""
        self._draining = True
        return NOTICE_SECONDS if self._balanced else 0.0
