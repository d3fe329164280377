"""C46: one prompt of 20 MB after the other neither stops the other callers' streams nor the answers to health checks.

The same streams are measured with and without such prompts, in turns; each figure is the best of its turns, since
whatever else the machine does can only make it worse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.bodies import chat_body
from tests.harness import Gateway
from tests.soak.load import load, loading, wish

TURNS = 2
SECONDS = 3
STREAMS = ("--connections=50", "--stream", "--stagger-us=400")
PACE = 20
"""Milliseconds between two events of a stream."""
MARGIN = 200
"""Milliseconds that a health answer, or an event of a stream, may take longer beside the prompts on a quiet machine.
On a busy one the streams alone have gaps: the margin grows as their longest does."""
BIG = chat_body(20_000_000, "MOCK:reply=1024;", messages=3)
ANSWERED = {"model": "big", "outcome": "ok"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def config(streams: str, prompts: str) -> dict[str, Any]:
    """The prompts go to an upstream of their own, and through rules that look at their text."""
    words = {"name": "words", "when": {"keywords": ["no such word", "迁移"]}, "to": "big"}
    return {
        "version": 1,
        "upstreams": {"streams": {"base_url": streams}, "prompts": {"base_url": prompts}},
        "models": {
            "small": {"upstream": "streams", "model": "mock-model"},
            "big": {"upstream": "prompts", "model": "mock-model"},
        },
        "routes": {"auto": {"rules": [words], "default": "big"}},
    }


@dataclass(frozen=True)
class Figures:
    """Milliseconds. Percentiles of the gaps between two events, the longest waits for an event and for health."""

    p50: float
    p99: float
    gap: float
    health: float

    def best(self, other: Figures) -> Figures:
        """The lesser of each."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Figures(*map(min, pairs))


async def slowest_health(gw: Gateway, over: asyncio.Event) -> float:
    """Ask every 100 ms until the end; the longest wait, in milliseconds."""
    clock, worst = asyncio.get_running_loop().time, 0.0
    async with gw.connect() as client:
        while not over.is_set():
            asked = clock()
            await client.send(b"GET /health/live HTTP/1.1\r\nhost: test\r\n\r\n")
            answer = await client.response()
            await answer.read()
            assert answer.status == 200
            worst = max(worst, clock() - asked)
            await asyncio.sleep(0.1)  # the pace of a liveness probe in a hurry
    return worst * 1000


async def measured(gw: Gateway) -> Figures:
    """One turn: 50 streams, none of whose events is lost or late for good, and the health checks beside them."""
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        health = group.create_task(slowest_health(gw, over))
        gaps = (await load(gw, wish("small", 50, PACE), SECONDS, *STREAMS))["gap_us"]
        over.set()
    return Figures(gaps["p50"] / 1000, gaps["p99"] / 1000, gaps["max"] / 1000, health.result())


async def beside_prompts(gw: Gateway) -> tuple[Figures, float]:
    """One turn beside one 20 MB prompt after the other, and how many of those were answered in it."""
    before = (await gw.metrics()).total("turnout_requests_total", **ANSWERED)
    async with loading(gw, BIG, 60, "--connections=1"):
        figures = await measured(gw)
        return figures, (await gw.metrics()).total("turnout_requests_total", **ANSWERED) - before


async def test_c46_a_20_mb_prompt_in_a_loop(mock: Callable[[], str]) -> None:
    quiet = loud = Figures(*[float("inf")] * 4)
    prompts = 0.0
    async with Gateway(config(mock(), mock())) as gw:
        for _ in range(TURNS):
            quiet = quiet.best(await measured(gw))
            figures, answered = await beside_prompts(gw)
            loud, prompts = loud.best(figures), prompts + answered
    print(f"\nquiet: {quiet}\nbeside {prompts:.0f} prompts of 20 MB: {loud}")
    assert prompts >= 2 * TURNS
    margin = MARGIN * max(1.0, quiet.gap / (1.25 * PACE))
    assert loud.health < quiet.health + margin
    assert loud.p50 < 1.25 * quiet.p50
    assert loud.p99 < quiet.p99 + margin
    assert loud.gap < quiet.gap + 1.5 * margin
