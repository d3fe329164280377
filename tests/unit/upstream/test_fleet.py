"""What is known of all upstreams together, and that it outlives a configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from gateway.clock import Tasks
from gateway.config.base_url import resolve
from gateway.config.runtime import Engine, Runtime
from gateway.upstream.breaker import CLOSED, OPEN
from gateway.upstream.fleet import Fleet
from gateway.upstream.pool import PoolLimits
from tests.fakes import Reply, Upstream
from tests.unit.building import a_model, a_runtime, an_upstream

TARGETS = tuple(resolve(f"http://127.0.0.1:{port}/v1") for port in (9, 10))
LOCAL = an_upstream("local", targets=TARGETS, engine=Engine(Path("c"), 9))
RUNTIME = a_runtime(a_model("fast", an_upstream("service")), a_model("quality", LOCAL))
METRICS = b"""\
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_waiting{engine="0"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:spec_decode_num_drafts_total{engine="0"} 10.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 8.0
"""


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    tasks = Tasks()
    fleet = Fleet(tasks, structlog.get_logger(), PoolLimits(), 0.01)
    fleet.configure(RUNTIME, RUNTIME)
    yield fleet
    await tasks.close()
    await fleet.close()


def without(runtime: Runtime, place: int) -> Runtime:
    """One replica of `local` is drained."""
    local = replace(LOCAL, targets=(*TARGETS[:place], *TARGETS[place + 1 :]))
    models = runtime.models | {"quality": replace(runtime.models["quality"], upstream=local)}  # type: ignore[operator]
    return replace(runtime, models=models, upstreams={**runtime.upstreams, "local": local})


async def test_every_replica_is_told_of(fleet: Fleet) -> None:
    assert fleet.busy() == {"service": 0, "local": 0}
    assert fleet.replicas_busy() == {("service", "0"): 0, ("local", "0"): 0, ("local", "1"): 0}
    assert fleet.replica_breakers() == {
        ("service", "0", "fast"): CLOSED,
        ("local", "0", "quality"): CLOSED,
        ("local", "1", "quality"): CLOSED,
    }
    assert fleet.engines() == {}
    assert fleet.engine(TARGETS[0]) is None


async def test_a_drained_one_is_still_told_of(fleet: Fleet) -> None:
    fleet.configure(without(RUNTIME, 0), RUNTIME)
    fleet.forget_others()
    assert fleet.replicas_busy().keys() == {("service", "0"), ("local", "0"), ("local", "1")}
    assert fleet.replica_breakers().keys() == {("service", "0", "fast"), ("local", "1", "quality")}


async def test_breakers_outlive_a_configuration(fleet: Fleet) -> None:
    breaker = fleet.breakers.configure(list(RUNTIME.models.values()), 1, 1000.0)["fast"].breakers[0]
    breaker._open(breaker._now(), 1000.0, "its breaker is open")
    fleet.configure(without(RUNTIME, 1), RUNTIME)
    assert fleet.replica_breakers()["service", "0", "fast"] == OPEN
    why = fleet.why_not(RUNTIME.models["fast"])
    assert why is not None
    assert why.startswith("its breaker is open")


async def test_what_is_off_has_no_figures(fleet: Fleet) -> None:
    off = a_runtime(a_model("fast", an_upstream("service", targets=(), off="no key")))
    fleet.configure(off, off)
    assert (fleet.busy(), fleet.replicas_busy(), fleet.engines()) == ({}, {}, {})


async def test_engines_that_were_looked_at(upstream: Upstream, fleet: Fleet) -> None:
    upstream.script(Reply(b""), path="/health", times=None)
    upstream.script(Reply(METRICS), path="/metrics", times=None)
    upstream.models = ["fake"]
    target = resolve(upstream.url)
    model = a_model("quality", replace(LOCAL, targets=(target,)))
    runtime = a_runtime(model)
    fleet.configure(runtime, runtime)
    assert await fleet.health.why_not(model) is None
    whose = ("local", "0")
    assert fleet.engines() == {
        "up": {whose: 1.0},
        "running": {whose: 3.0},
        "waiting": {whose: 1.0},
        "kv_cache_usage": {whose: 0.25},
        "acceptance_length": {whose: 1.8},
    }
    assert fleet.engine(target) == {
        "ready": True,
        "why": None,
        "running": 3.0,
        "waiting": 1.0,
        "kv": 0.25,
        "acceptance_length": 1.8,
        "version": None,
    }


async def test_an_engine_that_is_not_ready(upstream: Upstream, fleet: Fleet) -> None:
    upstream.script(Reply(b"", 503), path="/health", times=None)
    target = resolve(upstream.url)
    runtime = a_runtime(a_model("quality", replace(LOCAL, targets=(target,))))
    fleet.configure(runtime, runtime)
    fleet.watch(60.0)
    await fleet.health.why_not(runtime.models["quality"])
    assert fleet.engines() == {"up": {("local", "0"): 0.0}}
    engine = fleet.engine(target)
    assert engine is not None
    assert (engine["ready"], engine["why"], engine["running"]) == (False, "its engine is not ready (health 503)", None)
