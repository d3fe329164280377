"""Whether an engine that was ready still works: it answers, and what it runs goes on. A busy one is never ended."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from gateway.clock import now
from serving.engine.command import Launch
from serving.engine.http import ask

_FIGURE = re.compile(rb"^vllm:(num_requests_running|num_requests_waiting|generation_tokens_total|prompt_tokens_total)"
                     rb"(?:\{.*\})? ([0-9.eE+-]+)\r?$", re.MULTILINE)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds, and how often. `/health` costs vLLM nothing, but its event loop may be busy for seconds with one long
    prompt; a prefill of some hundred thousand tokens may take minutes without a token."""

    every: float = 5.0
    """Between two looks."""
    answer: float = 10.0
    """For an answer."""
    silent: int = 3
    """Looks in a row without a good answer: it is frozen, or its core is dead."""
    stuck: float = 300.0
    """Requests run, and neither a prompt nor a generated token has been counted for so long."""


PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine says of its work."""

    running: float
    waiting: float
    tokens: float
    """Prompt and generated ones since its start."""


async def work(launch: Launch, seconds: float) -> Work | None:
    """None: it does not tell in time."""
    try:
        answer = await asyncio.wait_for(ask(launch.port, "/metrics", api_key=launch.api_key), seconds)
        found: dict[bytes, float] = {}
        for name, value in _FIGURE.findall(answer.body):
            found[name] = found.get(name, 0.0) + float(value)
    except (TimeoutError, ValueError):
        return None
    if answer.status != 200 or b"num_requests_running" not in found:
        return None
    tokens = found.get(b"generation_tokens_total", 0.0) + found.get(b"prompt_tokens_total", 0.0)
    return Work(found[b"num_requests_running"], found.get(b"num_requests_waiting", 0.0), tokens)


async def lifeless(launch: Launch, patience: Patience) -> str:
    """Return when the engine does not work any more, and why."""
    silent, last, since = 0, -1.0, now()
    while True:
        await asyncio.sleep(patience.every)
        silent = 0 if await _healthy(launch, patience.answer) else silent + 1
        if silent >= patience.silent:
            return f"no good answer to /health {silent} times, each in {patience.answer:g} s: frozen, or dead inside"
        seen = await work(launch, patience.answer) if not silent else None
        if seen is None or not seen.running or seen.tokens != last:
            last, since = seen.tokens if seen is not None else last, now()
        elif now() - since >= patience.stuck:
            return f"it runs {seen.running:g} requests and has not counted a token for {patience.stuck:g} s: stuck"


async def until_idle(launch: Launch, seconds: float, every: float = 0.2) -> bool:
    """Wait until it has nothing to do, at most so many seconds; whether it has. One that does not answer has not."""
    until = now() + seconds
    while now() < until:
        seen = await work(launch, min(5.0, seconds))
        if seen is not None and not seen.running and not seen.waiting:
            return True
        await asyncio.sleep(every)
    return False


async def _healthy(launch: Launch, seconds: float) -> bool:
    try:
        return (await asyncio.wait_for(ask(launch.port, "/health"), seconds)).status == 200
    except TimeoutError:
        return False
