"""True readiness of one engine: healthy, the model listed, and one token generated.

`/health` alone says nothing: it is 200 before the model has run once (and stays so for an engine that is stuck).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from gateway.clock import now
from serving.engine.command import Launch
from serving.engine.errors import EngineFailed
from serving.engine.http import Answer, ask

Stage = Literal["starting", "loading weights", "warming up", "ready"]

STAGES: tuple[Stage, ...] = ("starting", "loading weights", "warming up", "ready")

MARKS: tuple[tuple[str, Stage], ...] = (
    ("Starting to load model", "loading weights"),
    ("Loading weights took", "warming up"),
    ("Model loading took", "warming up"),
    ("Application startup complete", "warming up"),
)
"""Words in vLLM's log, and the stage that begins with them."""

PROBES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "/v1/completions": {"prompt": "1", "max_tokens": 1, "temperature": 0},
        "/v1/embeddings": {"input": "1"},
    }
)
"""The least work that proves the model runs: for one that generates, and for one that only embeds."""


WARM_SECONDS = 30.0
"""For each request that warms an engine up."""
WARMING: tuple[Mapping[str, Any], ...] = (
    MappingProxyType({"max_tokens": 16}),
    MappingProxyType({"max_tokens": 8, "response_format": {"type": "json_object"}}),
)


@dataclass(frozen=True, slots=True)
class Progress:
    """An engine has reached a stage."""

    name: str
    stage: Stage
    seconds: float
    """Since its start."""


class Stages:
    """The stage an engine is in: it only ever moves forward, and each step is reported once."""

    def __init__(self, name: str, on_progress: Callable[[Progress], None]) -> None:
        self._name = name
        self._on_progress = on_progress
        self._since = now()
        self.stage: Stage = "starting"
        self._report()

    def read(self, line: str) -> None:
        """Take note of one line of the engine's log."""
        for mark, stage in MARKS:
            if mark in line:
                self.reach(stage)

    def reach(self, stage: Stage) -> None:
        """Move on to `stage`, unless it is past already."""
        if STAGES.index(stage) > STAGES.index(self.stage):
            self.stage = stage
            self._report()

    def _report(self) -> None:
        self._on_progress(Progress(self._name, self.stage, now() - self._since))


async def ready(launch: Launch, stages: Stages, timeout: float, interval: float = 0.5) -> None:
    """Return when `launch` is ready. EngineFailed when it refuses to work, or is not ready within `timeout` seconds.

    `interval` is the pause between two questions, in seconds. The caller watches whether the process still lives.
    """
    pending = list(CHECKS)
    try:
        async with asyncio.timeout(timeout):
            while pending:
                if await pending[0].holds(launch):
                    del pending[0]
                    stages.reach("warming up")
                else:
                    await asyncio.sleep(interval)
    except TimeoutError:
        missing = pending[0].missing.format(launch.model)
        raise EngineFailed(launch.name, f"not ready after {timeout:g} s ({stages.stage}): {missing}") from None
    await warm(launch)
    stages.reach("ready")


async def warm(launch: Launch, seconds: float = WARM_SECONDS) -> None:
    """Let it do once what callers will ask for: a chat with several tokens, so that it speculates, and JSON mode, whose
    grammar back end is loaded then. What it refuses (no chat template) or is slow with is left."""
    for fields in WARMING:
        body = {"model": launch.model, "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, **fields}
        with suppress(TimeoutError):
            await asyncio.wait_for(ask(launch.port, "/v1/chat/completions", body, launch.api_key), seconds)


async def _healthy(launch: Launch) -> bool:
    return (await ask(launch.port, "/health")).status == 200


async def _listed(launch: Launch) -> bool:
    answer = await ask(launch.port, "/v1/models", api_key=launch.api_key)
    if answer.status == 401:
        raise EngineFailed(launch.name, "it refuses the key; set the same key as `api_key` of the upstream")
    listing = answer.json() if answer.status == 200 else None
    models = listing.get("data") if isinstance(listing, dict) else None
    ids = {model.get("id") for model in models or () if isinstance(model, dict)}
    return ids.issuperset({launch.model, *launch.adapters})


async def _generates(launch: Launch) -> bool:
    """One token, or one embedding from a model without a generating head. EngineFailed where both are refused."""
    refusals = []
    for path, payload in PROBES.items():
        answer = await ask(launch.port, path, {"model": launch.model, **payload}, launch.api_key)
        if answer.status == 200:
            return True
        if not 400 <= answer.status < 500 or answer.status == 429:
            return False
        refusals.append(answer)
    raise EngineFailed(launch.name, f"it neither generates nor embeds: {_said(refusals[0])}")


def _said(answer: Answer) -> str:
    """An error response in one line."""
    text = " ".join(answer.body.decode(errors="replace").split())
    return f"HTTP {answer.status} {text[:300]}"


@dataclass(frozen=True, slots=True)
class Check:
    """One condition of readiness, and what is missing while it does not hold."""

    holds: Callable[[Launch], Awaitable[bool]]
    missing: str


CHECKS = (
    Check(_healthy, "/health has not answered 200"),
    Check(_listed, "/v1/models does not list {!r}"),
    Check(_generates, "it has not generated a token, though /health is 200"),
)
"""In this order."""
