from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway.clock import Tasks
from serving.engine.command import Launch
from serving.engine.errors import EngineFailed
from serving.engine.http import ask
from serving.engine.process import Process
from serving.engine.ready import Progress, Stages, ready, warm
from tests.unit.serving.engine.fakes import Log, fake_launch

SOON = 0.005
"""Seconds between two questions."""


@asynccontextmanager
async def running(launch: Launch) -> AsyncIterator[list[str]]:
    """The fake engine of `launch`, and its log."""
    log, tasks = Log(), Tasks()
    process = await Process.start(launch.command, {}, log, 10)
    end = tasks.spawn(process.run())
    try:
        yield log.lines
    finally:
        process.stop()
        await end


async def asked(launch: Launch, within: float = 30) -> tuple[list[str], list[str]]:
    """Wait for readiness; the stages that were shown, and the requests that the engine saw, repeated ones once."""
    steps: list[Progress] = []
    async with running(launch) as log:
        await ready(launch, Stages(launch.name, steps.append), within, SOON)
        return [step.stage for step in steps], list(dict.fromkeys(line for line in log if line[:3] in ("GET", "POS")))


async def test_ready_is_healthy_and_listed_and_one_token() -> None:
    stages, requests = await asked(fake_launch())
    assert stages == ["starting", "warming up", "ready"]
    assert requests == [
        "GET /health",
        "GET /v1/models",
        'POST /v1/completions {"max_tokens": 1, "model": "demo-ft", "prompt": "1", "temperature": 0}',
        'POST /v1/chat/completions {"max_tokens": 16, "messages": [{"content": "Hello", "role": "user"}], '
        '"model": "demo-ft", "temperature": 0}',
        'POST /v1/chat/completions {"max_tokens": 8, "messages": [{"content": "Hello", "role": "user"}], '
        '"model": "demo-ft", "response_format": {"type": "json_object"}, "temperature": 0}',
    ]


async def test_adapters_have_to_be_listed_too() -> None:
    launch = replace(fake_launch(models=[["demo-ft"], ["sql", "demo-ft"]]), adapters=("sql",))
    async with running(launch) as log:
        await ready(launch, Stages("local", lambda _: None), 30, SOON)
        assert log.count("GET /v1/models") == 2


async def test_an_engine_that_is_slow_to_warm_up_is_ready_all_the_same() -> None:
    launch = fake_launch(chats="never")
    async with running(launch) as log:
        while (await ask(launch.port, "/health")).status != 200:  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(SOON)
        await warm(launch, 0.2)
        assert sum(line.startswith("POST /v1/chat") for line in log) == 2


async def test_C48_health_comes_late() -> None:
    launch = fake_launch(health=[503, 503])
    async with running(launch) as log:
        await ready(launch, Stages("local", lambda _: None), 30, SOON)
        assert log.count("GET /health") == 3


async def test_C48_the_model_is_listed_late() -> None:
    launch = fake_launch(models=[[], ["other"]])
    async with running(launch) as log:
        await ready(launch, Stages("local", lambda _: None), 30, SOON)
        assert log.count("GET /v1/models") == 3


async def test_C48_healthy_but_it_never_generates() -> None:
    launch = fake_launch(generates="never")
    with pytest.raises(EngineFailed) as failed:
        await asked(launch, within=1)
    assert failed.value.reason == (
        "not ready after 1 s (warming up): it has not generated a token, though /health is 200"
    )


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ({"health": [503] * 9999}, "(starting): /health has not answered 200"),
        ({"models": [["other"]] * 9999}, "(warming up): /v1/models does not list 'demo-ft'"),
        ({"generates": 503}, "(warming up): it has not generated a token, though /health is 200"),
        ({"generates": 429}, "(warming up): it has not generated a token, though /health is 200"),
    ],
)
async def test_C48_what_is_missing_is_said(script: dict[str, Any], missing: str) -> None:
    with pytest.raises(EngineFailed) as failed:
        await asked(fake_launch(**script), within=0.5)
    assert failed.value.reason == f"not ready after 0.5 s {missing}"


async def test_nothing_listens() -> None:
    launch = fake_launch()
    with pytest.raises(EngineFailed, match="/health has not answered 200"):
        await ready(launch, Stages("local", lambda _: None), 0.1, SOON)


async def test_a_model_that_only_embeds() -> None:
    _, requests = await asked(fake_launch(generates=False, embeds=True))
    assert requests[3] == 'POST /v1/embeddings {"input": "1", "model": "demo-ft"}'


async def test_a_model_that_does_neither_fails_at_once() -> None:
    with pytest.raises(EngineFailed) as failed:
        await asked(fake_launch(generates=400))
    assert failed.value.reason.startswith('it neither generates nor embeds: HTTP 400 {"asked": {"model": "demo-ft"')


async def test_C48_the_engines_key_is_sent() -> None:
    stages, _ = await asked(fake_launch(api_key="sk-own", key="sk-own"))
    assert stages[-1] == "ready"


async def test_C48_a_wrong_key_is_told_apart() -> None:
    with pytest.raises(EngineFailed, match="it refuses the key; set the same key as `api_key` of the upstream"):
        await asked(fake_launch(api_key="sk-other", key="sk-own"))


async def test_waiting_can_be_cancelled() -> None:
    launch, tasks = fake_launch(generates="never"), Tasks()
    waiting = tasks.spawn(ready(launch, Stages("local", lambda _: None), 30, SOON))
    await tasks.close()
    with pytest.raises(asyncio.CancelledError):
        waiting.result()


def test_stages_follow_the_log_and_never_go_back() -> None:
    steps: list[Progress] = []
    stages = Stages("local[1]", steps.append)
    for line in (
        "(EngineCore pid=1) INFO 01-01 00:00:00 [x.py:1] Starting to load model demo-ft...",
        "(EngineCore pid=1) INFO 01-01 00:00:01 [x.py:1] Loading weights took 0.02 seconds",
        "(EngineCore pid=1) INFO 01-01 00:00:01 [x.py:1] Model loading took 0.1 GiB",
        "(EngineCore pid=1) INFO 01-01 00:00:02 [x.py:1] Starting to load model of the drafter...",
    ):
        stages.read(line)
    stages.reach("ready")
    assert [step.stage for step in steps] == ["starting", "loading weights", "warming up", "ready"]
    assert {step.name for step in steps} == {"local[1]"}
    assert sorted(step.seconds for step in steps) == [step.seconds for step in steps]
