"""The planner of one configuration. `turnout explain` will be this, run without sending."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gateway.call import Attempt, Call, Plan
from gateway.config.runtime import Model, Route, Runtime
from gateway.errors import GatewayError


class Planner:
    """Turns the name a client sent into a plan."""

    def __init__(self, runtime: Runtime) -> None:
        self._routes = runtime.routes
        self._models = runtime.models
        self._by_id: dict[str, Model] = {}
        for model in runtime.models.values():
            for model_id in model.ids:
                self._by_id.setdefault(model_id, model)

    def plan(self, call: Call) -> Plan:
        """The attempts for a call. Raises GatewayError model_not_found, model_not_allowed, no_healthy_model, and
        invalid_request where no model of the plan speaks this endpoint."""
        name = call.body.model
        route = self._routes.get(name)
        if route is not None:
            self._allowed(call, name)
            return self._usable(call, route.name, "default", self._of_route(route))
        model = self._models.get(name) or self._by_id.get(name)
        if model is None:
            raise GatewayError("model_not_found", self.unknown(name, call.caller.models), param="model")
        self._allowed(call, model.name)
        return self._usable(call, model.name, "model", [Attempt(model, "named by the client")])

    def names(self, call_models: frozenset[str] | None) -> list[str]:
        """Routes and models that a caller with these allowed names may send, routes first."""
        return [n for n in (*self._routes, *self._models) if call_models is None or n in call_models]

    def _of_route(self, route: Route) -> list[Attempt]:
        attempts = [Attempt(self._models[route.default], "the route's default")]
        named = {route.default}
        for name in route.fallback:
            if name not in named:
                named.add(name)
                attempts.append(Attempt(self._models[name], "fallback"))
        return attempts

    def _usable(self, call: Call, route: str, rule: str, attempts: Iterable[Attempt]) -> Plan:
        chosen: list[Attempt] = []
        skipped: list[tuple[str, str]] = []
        endpoint = call.endpoint.name
        for attempt in attempts:
            upstream = attempt.model.upstream
            if upstream.off is not None:
                skipped.append((attempt.model.name, f"upstream '{upstream.name}' is off: {upstream.off}"))
            elif endpoint not in upstream.speaks:
                skipped.append((attempt.model.name, f"upstream '{upstream.name}' does not speak {endpoint}"))
            else:
                chosen.append(attempt)
        if chosen:
            return Plan(route, rule, tuple(chosen), tuple(skipped))
        why = "; ".join(f"{model}: {reason}" for model, reason in skipped)
        if all(endpoint not in a.model.upstream.speaks for a in attempts):
            raise GatewayError(
                "invalid_request", f"'{route}' cannot answer {endpoint} requests ({why}).", param="model"
            )
        raise GatewayError("no_healthy_model", f"No model of '{route}' can be used now ({why}).", retry_after=10)

    def _allowed(self, call: Call, name: str) -> None:
        models = call.caller.models
        if models is not None and name not in models:
            names = ", ".join(sorted(models)) or "none"
            raise GatewayError(
                "model_not_allowed", f"This key may not use '{name}'. It may use: {names}.", param="model"
            )

    def unknown(self, name: str, allowed: frozenset[str] | None) -> str:
        """What to tell a caller who asked for a name that is not there: the nearest ones that it may use."""
        names = self.names(allowed)
        near = difflib.get_close_matches(name[:100], names, n=3, cutoff=0.4) or names[:5]
        return f"The model '{name[:100]}' does not exist here. Nearest: {', '.join(near) or 'none'}."
