"""Whether a model could answer, by small questions to a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from gateway.clock import Tasks
from gateway.config.base_url import resolve
from gateway.config.runtime import Engine, Model, Target
from gateway.upstream.health import Drafts, Health, Load, load_of
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
    assert [(r.method, r.path) for r in upstream.requests] == [
        ("GET", "/health"),
        ("GET", "/v1/models"),
        ("GET", "/version"),
        ("GET", "/metrics"),
    ]
    assert upstream.requests[0].header("authorization") == "Bearer sk-up"


@pytest.mark.parametrize(
    ("told", "version"),
    [(b'{"version":"0.32.0"}', "0.32.0"), (b'{"version":5}', ""), (b"no JSON", ""), (b"{}", "")],
)
async def test_the_version_is_asked_once(upstream: Upstream, told: bytes, version: str) -> None:
    answers(upstream, Reply(b""))
    upstream.script(Reply(told), path="/version", times=None)
    health, target = Health(), resolve(upstream.url)
    for _ in range(3):
        assert await health.why_not(a_local_model(target), within=0) is None
    seen = health.seen(target)
    assert seen is not None
    assert seen.version == version
    assert sum(request.path == "/version" for request in upstream.requests) == 1


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


@pytest.mark.parametrize(
    ("health", "down"),
    [
        (Reply(b"", 503), True),
        (Reply(b"", 500), True),
        (Reply(b""), False),
        (Reply(b"", 404), False),
        (Reply(b"", 401), False),
        (Reset(), False),
    ],
    ids=["503", "500", "200", "404", "401", "reset"],
)
async def test_down_is_one_that_says_so_itself(upstream: Upstream, health: Step, down: bool) -> None:
    """Any other could answer a call all the same."""
    answers(upstream, health)
    looks, model = Health(), a_local_model(resolve(upstream.url))
    await looks.why_not(model)
    seen = looks.seen(model.upstream.targets[0])
    assert seen is not None
    assert seen.down is down


async def test_nobody_at_the_port() -> None:
    with refusing_port() as port:
        looks, model = Health(), a_local_model(resolve(f"http://127.0.0.1:{port}"))
        assert await looks.why_not(model) == "its engine does not answer (connection refused)"
        seen = looks.seen(model.upstream.targets[0])
        assert seen is not None
        assert seen.down


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


# -- looking beside calls


METRICS = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a } b"} 3.0
vllm:num_requests_running{engine="1",model_name="a } b"} 1.0
vllm:num_requests_waiting{engine="0",model_name="a } b"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="a } b"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a } b"} 5e-1
"""


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (METRICS, Load(4.0, 2.0, 0.5)),
        (METRICS.replace(b"\n", b"\r\n"), Load(4.0, 2.0, 0.5)),
        (b"vllm:num_requests_running 1\n", Load(1.0, 0.0, 0.0)),
        (b"vllm:num_requests_running 1e\n", None),
        (b"vllm:num_requests_running NaN\n", None),
        (b"# vllm:num_requests_running 1\n", None),
        (b"<html>", None),
        (b"", None),
    ],
)
def test_what_an_engine_reports(text: bytes, load: Load | None) -> None:
    assert load_of(text) == load


SPECULATION = b"""\
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 30.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 8.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 5.0
"""


def test_what_an_engine_reports_of_its_speculations() -> None:
    assert load_of(METRICS + SPECULATION) == Load(4.0, 2.0, 0.5, 10.0, 8.0)


def drafted(drafts: float, accepted: float) -> Load:
    return Load(0.0, 0.0, 0.0, drafts, accepted)


def test_the_acceptance_length_is_that_of_the_last_minute() -> None:
    drafts = Drafts()
    assert drafts.acceptance_length(0, drafted(0, 0)) is None
    assert drafts.acceptance_length(2, drafted(10, 20)) == 3.0
    assert drafts.acceptance_length(30, drafted(20, 20)) == 2.0
    assert drafts.acceptance_length(80, drafted(30, 20)) == 1.0  # since the look that is a minute old
    since_its_start = drafts.acceptance_length(200, drafted(30, 20))  # nothing was drafted lately
    assert since_its_start == pytest.approx(1 + 20 / 30)
    assert drafts.acceptance_length(202, drafted(1, 3)) == 4.0  # it has been started anew
    assert len(drafts._told) == 1


async def test_looks_tell_the_acceptance_length(upstream: Upstream) -> None:
    answers(upstream, Reply(b""))
    upstream.script(Reply(METRICS + SPECULATION), path="/metrics", times=None)
    health, model = Health(), a_local_model(resolve(upstream.url))
    await health.why_not(model)
    seen = health.seen(model.upstream.targets[0])
    assert seen is not None
    assert seen.acceptance_length == 1.8


class Watching:
    """Health that looks every few milliseconds while it is watched."""

    def __init__(self) -> None:
        self.tasks = Tasks()
        self.looks: list[asyncio.Task[None]] = []
        self.health = Health(self.spawn, every=0.01)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.looks.append(self.tasks.spawn(work))

    async def until(self, model: Model, why: str | None) -> None:
        """Wait until this is what is known."""
        async with asyncio.timeout(15):
            while self.health.known(model) != why:  # noqa: ASYNC110 - what is known has no event
                await asyncio.sleep(0.005)


@pytest.fixture
async def watching() -> AsyncIterator[Watching]:
    watching = Watching()
    yield watching
    await watching.tasks.close()


async def test_nobody_looks_until_a_call_wants_it(upstream: Upstream, watching: Watching) -> None:
    model = a_local_model(resolve(upstream.url))
    assert watching.health.known(model) is None
    await asyncio.sleep(0)
    assert upstream.requests == []
    assert watching.health.known(a_model()) is None


async def test_an_engine_is_looked_at_while_calls_want_it(upstream: Upstream, watching: Watching) -> None:
    model = a_local_model(resolve(upstream.url))
    upstream.script(Reply(b"", 503), path="/health", times=None)
    for _ in range(5):
        watching.health.watch(model.upstream)
    await watching.until(model, "its engine is not ready (health 503)")
    upstream.scripts.clear()
    answers(upstream, Reply(b""))
    await watching.until(model, None)
    upstream.models = ["other"]
    upstream.scripts.clear()
    upstream.script(Reply(b""), path="/health", times=None)
    await watching.until(model, "its engine does not list the model")
    assert len(watching.looks) == 1


async def test_replicas_tell_their_load(upstream: Upstream, watching: Watching) -> None:
    answers(upstream, Reply(b""))
    upstream.script(Reply(METRICS), path="/metrics", times=None)
    async with Upstream() as other:
        answers(other, Reply(b""))
        targets = (resolve(upstream.url), resolve(other.url))
        model = a_local_model(*targets)
        watching.health.watch(model.upstream)
        async with asyncio.timeout(15):
            while (seen := watching.health.seen(targets[0])) is None:  # noqa: ASYNC110 - nor has this
                await asyncio.sleep(0.005)
        assert seen.load == Load(4.0, 2.0, 0.5)
        second = watching.health.seen(targets[1])
        assert second is not None
        assert (second.why, second.load) == (None, None)
        await watching.tasks.close()


async def test_looking_ends_when_no_call_comes(upstream: Upstream, watching: Watching) -> None:
    """And begins anew with the next one."""
    watching.health = Health(watching.spawn, every=0.01, idle=0.05)
    model = a_local_model(resolve(upstream.url))
    async with asyncio.timeout(15):
        for _ in range(2):
            watching.health.watch(model.upstream)
            await watching.looks[-1]
    assert len(watching.looks) == 2
    assert watching.health.seen(model.upstream.targets[0]) is None


async def test_a_longer_wish_lasts_longer(upstream: Upstream, watching: Watching) -> None:
    """Shorter ones do not cut it."""
    watching.health = Health(watching.spawn, every=0.01, idle=0.02)
    model = a_local_model(resolve(upstream.url))
    watching.health.watch(model.upstream, 60.0)
    watching.health.watch(model.upstream)
    async with asyncio.timeout(15):
        while upstream.count("/health", "GET") < 10:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert len(watching.looks) == 1
    assert not watching.looks[0].done()


async def test_looking_ends_with_its_owner(upstream: Upstream, watching: Watching) -> None:
    """And what was seen is forgotten."""
    model = a_local_model(resolve(upstream.url))
    upstream.script(Reply(b"", 503), path="/health", times=None)
    watching.health.watch(model.upstream)
    await watching.until(model, "its engine is not ready (health 503)")
    await watching.tasks.close()
    assert watching.health.known(model) is None
