"""Whether a model could answer, by small questions to a scripted engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.config.base_url import resolve
from gateway.config.runtime import Engine, Model, Target
from gateway.upstream.health import Health
from tests.fakes import Reply, Reset, Step, Upstream, refusing_port
from tests.unit.building import a_model, an_upstream

ENGINE = Engine(Path("checkpoint"), 8100)
LISTED = Reply(b'{"data":[{"id":"other"},{"id":"fake"}]}')


def a_local_model(*targets: Target, **changes: Any) -> Model:
    return a_model(upstream=an_upstream(targets=targets, engine=ENGINE), **changes)


def answers(upstream: Upstream, health: Step, models: Step = LISTED) -> None:
    upstream.script(health, path="/health", times=None)
    upstream.script(models, path="/models", times=None)


async def test_what_the_configuration_knows() -> None:
    assert await Health().why_not(a_model()) is None
    off = a_model(upstream=an_upstream("tao", off="TAOTOKEN_KEY is not set"))
    assert await Health().why_not(off) == "upstream 'tao' is off: TAOTOKEN_KEY is not set"


async def test_a_service_is_never_asked(upstream: Upstream) -> None:
    assert await Health().why_not(a_model(upstream=an_upstream(targets=(resolve(upstream.url),)))) is None
    assert upstream.requests == []


async def test_an_engine_that_lists_the_model(upstream: Upstream) -> None:
    answers(upstream, Reply(b""))
    assert await Health().why_not(a_local_model(resolve(upstream.url), ids=("first", "fake"))) is None
    assert [(r.method, r.path) for r in upstream.requests] == [("GET", "/health"), ("GET", "/v1/models")]
    assert upstream.requests[0].header("authorization") == "Bearer sk-up"


@pytest.mark.parametrize(
    ("health", "models", "why"),
    [
        (Reply(b"", 503), LISTED, "its engine is not ready (health 503)"),
        (Reset(), LISTED, "its engine does not answer (the connection broke)"),
        (Reply(b""), Reply(b'{"data":[{"id":"other"}]}'), "its engine does not list the model"),
        (Reply(b""), Reply(b"{}", 401), "its engine does not list the model"),
        (Reply(b""), Reply(b'{"models":[]}'), "its engine's list of models cannot be read"),
        (Reply(b""), Reply(b"<html>"), "its engine's list of models cannot be read"),
        (Reply(b""), Reply(b'{"data":[1]}'), "its engine's list of models cannot be read"),
    ],
)
async def test_an_engine_that_could_not_answer(upstream: Upstream, health: Step, models: Step, why: str) -> None:
    answers(upstream, health, models)
    assert await Health().why_not(a_local_model(resolve(upstream.url))) == why


async def test_nobody_at_the_port() -> None:
    with refusing_port() as port:
        why = await Health().why_not(a_local_model(resolve(f"http://127.0.0.1:{port}")))
        assert why == "its engine does not answer (cannot connect)"


async def test_one_usable_replica_is_enough(upstream: Upstream) -> None:
    answers(upstream, Reply(b""))
    with refusing_port() as port:
        dead = resolve(f"http://127.0.0.1:{port}")
        assert await Health().why_not(a_local_model(dead, resolve(upstream.url))) is None


async def test_an_answer_is_remembered_for_a_moment(upstream: Upstream) -> None:
    answers(upstream, Reply(b""))
    health, model = Health(), a_local_model(resolve(upstream.url))
    for _ in range(20):
        assert await health.why_not(model) is None
    await asyncio.gather(*(health.why_not(model) for _ in range(20)))
    assert upstream.count("/health", "GET") == 1
