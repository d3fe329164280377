"""Calls and configurations for unit tests, built without a file."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from gateway.call import ENDPOINTS, Attempt, Call, Usage
from gateway.config.runtime import GatewaySettings, Model, Route, Runtime, Target, Upstream
from gateway.edge.body import parse
from gateway.routing.pins import Pins
from gateway.routing.planner import Planner, Senses

BODY = b'{"model":"auto","messages":[]}'
DIGEST = "0123456789ab"


def an_upstream(name: str = "u0", **changes: Any) -> Upstream:
    """An upstream on a port that nothing is ever sent to."""
    return Upstream(name, **{"targets": (Target("http", "127.0.0.1", 9, "/v1"),), "api_key": "sk-up", **changes})


def a_model(name: str = "m0", upstream: Upstream | None = None, **changes: Any) -> Model:
    """A model whose upstream's id is `fake`."""
    return Model(name, upstream or an_upstream(), **{"ids": ("fake",), **changes})


def a_runtime(*models: Model, **changes: Any) -> Runtime:
    """A configuration with these models (default: `m0`) and the route `auto` that tries them in order."""
    models = models or (a_model(),)
    routes = {"auto": Route("auto", models[0].name, tuple(m.name for m in models[1:]))}
    given: dict[str, Any] = {
        "file": Path("routing.yaml"),
        "digest": DIGEST,
        "gateway": GatewaySettings(),
        "upstreams": {m.upstream.name: m.upstream for m in models},
        "models": {m.name: m for m in models},
        "routes": routes,
        "keys": (),
        "open_to_all": True,
    }
    return Runtime(**given | changes)


def a_planner(runtime: Runtime, **senses: Any) -> Planner:
    """A planner to which every model is well, every text `other` and no split applies, unless told otherwise."""
    usual: dict[str, Any] = {
        "classify": lambda text: "other",
        "estimate": lambda raw: len(raw) // 4,
        "assign": lambda route, rule, unit: None,
        "why_not": lambda model: None,
        "pins": Pins(),
        "secret": b"secret",
    }
    return Planner(runtime, frozenset({"refactor", "chat", "other"}), Senses(**usual | senses))


def a_call(
    body: bytes = BODY,
    *,
    endpoint: str = "chat",
    headers: Mapping[bytes, bytes] | None = None,
    runtime: Runtime | None = None,
    arrived: float = 100.0,
) -> Call:
    """A call whose body has been read."""
    call = Call("req_1", ENDPOINTS[endpoint], headers or {}, "127.0.0.1", runtime or a_runtime(), arrived)
    call.body = parse(body, call.endpoint)
    return call


def answered(call: Call, model: Model, *, completion: int = 0, cost: str = "0", outcome: str = "ok") -> Call:
    """The call with an answer of `model`, its books done."""
    call.answered, call.outcome = Attempt(model, ""), outcome
    call.usage, call.cost = Usage(prompt=10, completion=completion, reported=True), Decimal(cost)
    return call
