"""One snapshot: what stands in it, for one world of upstreams, models and changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from gateway import __version__
from gateway.changes import Changes, Override
from gateway.clock import Tasks
from gateway.config.base_url import resolve
from gateway.config.reload import Reloads
from gateway.config.runtime import Engine, Experiment, Model, Notice, Price, PricePlan, Runtime, Target
from gateway.database import DatabaseDown
from gateway.ops.state import Sources, State
from tests.unit.building import DIGEST, a_model, a_runtime, an_upstream

TARGETS = tuple(resolve(f"http://127.0.0.1:{port}/v1") for port in (9, 10))
SERVICE = an_upstream("service", targets=(resolve("https://[2001:db8::1]/v1"),))
LOCAL = an_upstream("local", targets=TARGETS, engine=Engine("c", 9))  # type: ignore[arg-type]
PRICE = Price(input=Decimal("0.6"), output=Decimal(3))
PLAN = Price(plan=PricePlan(Decimal(50), "month", 300))
MODELS = (
    a_model("fast", SERVICE, price=PRICE, context=1000),
    a_model("quality", LOCAL, price=PLAN),
    a_model("off", an_upstream("off", targets=(), off="KEY is not set")),
)
EXPERIMENT = Experiment("split", "auto", {"fast": 50.0, "quality": 50.0}, ("task",), "key")
WRITTEN = a_runtime(*MODELS, experiments={"split": EXPERIMENT}, notices=(Notice("routing.yaml:3: x", "a text"),))
ENGINE = {"ready": True, "why": None, "running": 3, "waiting": 1, "kv": 0.25, "acceptance_length": 1.8}


@dataclass
class World:
    """Everything that a snapshot is made of."""

    changes: Changes = field(default_factory=Changes)
    up: bool = True
    redis: bool | None = None
    unusable: dict[str, dict[str, str]] = field(default_factory=dict)
    watched: list[float] = field(default_factory=list)
    levels: dict[str, Mapping[tuple[str, ...], float]] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    workers: int = 4
    reloads: Reloads = field(default_factory=Reloads)

    @property
    def catalog(self) -> World:
        return self

    def id_of(self, model: Model) -> str:
        return f"id of {model.name}"

    def why_not(self, model: Model) -> str | None:
        return "its breaker is open" if model.name == "quality" else None

    def engine(self, target: Target) -> dict[str, Any] | None:
        return ENGINE if target == TARGETS[0] else None

    def watch(self, seconds: float) -> None:
        self.watched.append(seconds)

    async def usage(self, by: str, since: str, until: str, key: str | None) -> dict[str, Any]:
        raise DatabaseDown("gone")

    def sources(self, tasks: Tasks) -> Sources:
        async def figures() -> World:
            return self

        async def unusable() -> dict[str, dict[str, str]]:
            return self.unusable

        runtime: Runtime = self.changes.applied(WRITTEN)
        gauges = ("started", "replica_in_flight", "replica_breaker", "ledger_queue_depth")
        for name in (*gauges, "spec_decode_acceptance_length"):
            self.levels.setdefault(name, {})
        for name in ("ledger_dropped", "experiment_exposures", "requests", "tokens", "cost_usd", "attempts"):
            self.rows.setdefault(name, [])
        for name in ("fallbacks", "limit_rejections", "request_seconds", "time_to_first_token_seconds"):
            self.rows.setdefault(name, [])
        drafts = ("spec_decode_drafts", "spec_decode_draft_tokens", "spec_decode_accepted_tokens")
        for name in (*drafts, "overhead_seconds"):
            self.rows.setdefault(name, [])
        return Sources(
            runtimes=lambda: (runtime, WRITTEN),
            overrides=self,
            reloads=self.reloads,
            ledger=self,
            figures=figures,
            alarm=lambda: [{"model": "quality"}],
            near=lambda: [{"kind": "key"}],
            unusable=unusable,
            fleet=self,
            tasks=tasks,
            redis=lambda: self.redis,
        )


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    await tasks.close()


async def snapshot(world: World, tasks: Tasks) -> dict[str, Any]:
    """As a program reads it."""
    document: dict[str, Any] = json.loads(json.dumps(await State(world.sources(tasks)).snapshot(), allow_nan=False))
    return document


async def test_a_quiet_gateway(tasks: Tasks) -> None:
    world = World()
    state = await snapshot(world, tasks)
    assert (state["version"], state["workers"], state["limits"]) == (__version__, 4, [{"kind": "key"}])
    assert state["uptime"] >= 0
    assert state["config"] == {
        "digest": DIGEST,
        "file": "routing.yaml",
        "loaded_at": world.reloads.loaded_at,
        "notices": [{"where": "routing.yaml:3: x", "text": "a text", "trouble": True}],
        "refused": None,
    }
    assert state["health"] == {
        "ready": True,
        "unusable": {},
        "redis": None,
        "on_redis_failure": "share",
        "database": "up",
        "ledger": {"queued": 0, "dropped": 0},
    }
    assert set(state["counters"]) == {
        *("requests", "tokens", "cost", "attempts", "fallbacks", "rejections", "latency", "first_token", "overhead")
    }
    assert (state["month"], state["today"], state["overrides"]) == (None, None, [])
    assert state["routes"] == [
        {"name": "auto", "default": "fast", "rules": [], "fallback": ["quality", "off"], "sticky": "conversation"}
    ]
    assert world.watched == [10.0]


async def test_models(tasks: Tasks) -> None:
    closed = Override("model", "fast", {"reason": "tests"}, 5.0, "me")
    moved = Override("traffic", "quality", {"moved": {"tool": "it stalls"}}, 5.0, "alarm")
    fast, quality, off = (await snapshot(World(Changes((closed, moved))), tasks))["models"]
    assert quality["moved"] == {"tool": "it stalls"}
    assert fast == {
        "name": "fast",
        "upstream": "service",
        "id": "id of fast",
        "context": 1000,
        "price": {"input": 0.6, "output": 3.0},
        "moved": {},
        "closed": {"at": 5.0, "by": "me", "reason": "tests"},
        "why_not": None,
    }
    assert quality["price"] == {"plan": {"usd": 50.0, "per": "month", "tokens": 300}}
    assert (quality["closed"], quality["why_not"]) == (None, "its breaker is open")
    assert (off["price"], off["why_not"]) == (None, "KEY is not set")


async def test_upstreams(tasks: Tasks) -> None:
    world = World(
        Changes(
            (
                Override("engine", "local", {"asked": 7000, "state": "asked for"}, 7.0, "me"),
                Override("upstream", "local", {"drained": [TARGETS[1].url]}, 5.0, "me"),
            )
        ),
        levels={
            "replica_in_flight": {("local", "0"): 2.0, ("service", "0"): 1.0},
            "replica_breaker": {("local", "0", "quality"): 2.0, ("service", "0", "fast"): 1.0},
        },
    )
    service, local, off = (await snapshot(world, tasks))["upstreams"]
    assert (service["kind"], service["off"]) == ("service", None)
    assert service["replicas"] == [
        {
            "index": 0,
            "address": "[2001:db8::1]:443",
            "breaker": {"fast": "half-open"},
            "in_flight": 1,
            "drained": False,
            "engine": None,
        }
    ]
    first, second = local["replicas"]
    assert (first["address"], first["breaker"], first["in_flight"]) == ("127.0.0.1:9", {"quality": "open"}, 2)
    assert (first["engine"], first["drained"], second["engine"], second["drained"]) == (ENGINE, False, None, True)
    assert (second["index"], second["breaker"], second["in_flight"]) == (1, {}, 0)
    assert (local["restarting"], service["restarting"]) == ({"at": 7.0, "state": "asked for"}, None)
    assert (local["kind"], off["off"], off["replicas"]) == ("engine", "KEY is not set", [])


async def test_speculation(tasks: Tasks) -> None:
    labels = {"model": "quality", "task": "debug", "arm": "", "kind": "tool"}
    world = World(
        rows={
            "spec_decode_drafts": [{**labels, "count": 10.0}],
            "spec_decode_draft_tokens": [{**labels, "count": 20.0}],
            "spec_decode_accepted_tokens": [{**labels, "count": 15.0}],
        },
        levels={"spec_decode_acceptance_length": {("quality", "debug", "", "tool"): 2.5}},
    )
    state = await snapshot(world, tasks)
    assert state["speculation"] == [{"model": "quality"}]
    assert state["acceptance"] == [
        {**labels, "drafts": 10, "draft_tokens": 20, "accepted_tokens": 15, "acceptance_length": 2.5}
    ]


async def test_experiments(tasks: Tasks) -> None:
    rows = [{"experiment": "split", "arm": "fast", "count": 7.0}]
    changed = Override("experiment", "split", {"arms": {"fast": 1.0, "quality": 3.0}}, 5.0, "me")
    state = await snapshot(World(Changes((changed,)), rows={"experiment_exposures": rows}), tasks)
    assert state["experiments"] == [
        {
            "name": "split",
            "route": "auto",
            "rules": ["task"],
            "unit": "key",
            "arms": {"fast": 1.0, "quality": 3.0},
            "overridden": True,
            "exposures": {"fast": 7},
        }
    ]
    idle = Override("experiment", "split", {"arms": {"gone": 1.0}}, 5.0, "me")
    state = await snapshot(World(Changes((idle,))), tasks)
    assert (state["experiments"][0]["overridden"], state["experiments"][0]["arms"]["fast"]) == (False, 50.0)
    assert state["overrides"][0]["without_effect"] == "no model is called 'gone'"


async def test_trouble(tasks: Tasks) -> None:
    world = World(up=False, redis=False, unusable={"auto": {"fast": "why"}})
    world.levels["ledger_queue_depth"], world.rows["ledger_dropped"] = {(): 5.0}, [{"count": 2.0}]
    world.reloads.ended("refused", "routing.yaml:3: no")
    state = await snapshot(world, tasks)
    assert state["health"] == {
        "ready": False,
        "unusable": {"auto": {"fast": "why"}},
        "redis": "down",
        "on_redis_failure": "share",
        "database": "down",
        "ledger": {"queued": 5, "dropped": 2},
    }
    assert state["config"]["refused"] == "routing.yaml:3: no"


async def test_no_secret_stands_in_it(tasks: Tasks) -> None:
    text = json.dumps(await snapshot(World(), tasks))
    assert "sk-up" not in text
