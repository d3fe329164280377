"""Asks one engine with its speculator and one without, one after the other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.clock import now
from gateway.config.runtime import Runtime, Upstream
from serving.engine import Engines, plan, surroundings
from serving.engine.command import Launch, engine_of
from serving.engine.errors import EngineFailed
from serving.engine.http import ask
from serving.engine.preflight import free_port
from serving.engine.supervise import to_stderr
from serving.parity.compare import Answer, Verdict, compare

AT_ONCE = 4
"""Prompts that are asked at the same time, of both sides."""
ANSWER_SECONDS = 300.0
_COUNTS = re.compile(rb"^vllm:spec_decode_num_(drafts|accepted_tokens)_total\S* ([0-9.eE+-]+)\r?$", re.MULTILINE)

Body = dict[str, Any]
Asked = Callable[[str, int], None]
"""Told which side has answered how many prompts."""


@dataclass(frozen=True, slots=True)
class Side:
    """One engine's answers."""

    answers: tuple[Answer, ...]
    seconds: float
    """For all of them."""
    acceptance_length: float | None = None
    """Mean tokens of a step with a draft; None: it drafted nothing."""


@dataclass(frozen=True, slots=True)
class Report:
    """Both sides, and how each pair of answers compares."""

    speculated: Side
    plain: Side
    verdicts: tuple[Verdict, ...]

    def count(self, result: str) -> int:
        """Verdicts with this result."""
        return sum(verdict.result == result for verdict in self.verdicts)


async def run(
    runtime: Runtime,
    upstream: Upstream,
    bodies: Sequence[Body],
    asked: Asked = lambda side, count: None,
    say: Callable[[str], None] = to_stderr,
) -> Report:
    """Compare over these chat bodies. The engine with its speculator is the running one where it runs, else one that is
    started for it; the one without is started beside or after it. EngineFailed where one does not come up."""
    engine = engine_of(upstream)
    if engine.speculative is None:
        raise EngineFailed(upstream.name, "it has no engine.speculative, there is nothing to compare")
    one = replace(engine, replicas=1, gpus=engine.gpus and engine.gpus[: len(engine.gpus) // engine.replicas])
    [with_it] = plan(runtime, replace(upstream, engine=one), say)
    [without] = plan(runtime, replace(upstream, engine=replace(one, speculative=None)), say)
    if await _runs(with_it):
        say(f"turnout: engine {upstream.name}: it runs already; the one without speculation needs memory beside it")
        speculated = await _side(with_it, bodies, lambda count: asked("with speculation", count))
    else:
        speculated = await _started(runtime, with_it, bodies, lambda count: asked("with speculation", count), say)
    if speculated.acceptance_length is None and any(answer.error is None for answer in speculated.answers):
        raise EngineFailed(upstream.name, "the side with speculation drafted nothing: there is nothing to compare")
    plain = await _started(runtime, without, bodies, lambda count: asked("without", count), say)
    pairs = zip(speculated.answers, plain.answers, strict=True)
    return Report(speculated, plain, tuple(compare(one, other) for one, other in pairs))


async def _started(
    runtime: Runtime, launch: Launch, bodies: Sequence[Body], asked: Callable[[int], None], say: Callable[[str], None]
) -> Side:
    launch = replace(launch.on(free_port()), restarts=0)
    async with Engines([launch], surroundings(runtime), say=say) as engines:
        await engines.ready()
        return await _side(launch, bodies, asked)


async def _runs(launch: Launch) -> bool:
    try:
        answer = await asyncio.wait_for(ask(launch.port, "/v1/models", api_key=launch.api_key), 5)
    except TimeoutError:
        return False
    listing = answer.json() if answer.status == 200 else None
    models = listing.get("data") if isinstance(listing, dict) else None
    return any(isinstance(model, dict) and model.get("id") == launch.model for model in models or ())


async def _side(launch: Launch, bodies: Sequence[Body], asked: Callable[[int], None]) -> Side:
    before, since, done = await _counts(launch), now(), 0
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(body: Body) -> Answer:
        nonlocal done
        async with gate:
            try:
                sent = {**body, "model": launch.model}
                answer = await asyncio.wait_for(
                    ask(launch.port, "/v1/chat/completions", sent, launch.api_key), ANSWER_SECONDS
                )
                found = Answer.of(answer.status, answer.json())
            except TimeoutError:
                found = Answer(error=f"no answer within {ANSWER_SECONDS:g} s")
        done += 1
        asked(done)
        return found

    answers = await asyncio.gather(*map(one, bodies))
    seconds, after = now() - since, await _counts(launch)
    drafts, accepted = after[0] - before[0], after[1] - before[1]
    return Side(tuple(answers), seconds, 1 + accepted / drafts if drafts > 0 else None)


async def _counts(launch: Launch) -> tuple[float, float]:
    """Drafts and accepted tokens since the engine's start."""
    try:
        body = (await asyncio.wait_for(ask(launch.port, "/metrics", api_key=launch.api_key), ANSWER_SECONDS)).body
    except TimeoutError:
        body = b""
    found = {b"drafts": 0.0, b"accepted_tokens": 0.0}
    for name, value in _COUNTS.findall(body):
        found[name] += float(value)
    return found[b"drafts"], found[b"accepted_tokens"]
