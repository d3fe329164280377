"""One chat call through the gateway as its caller sees it: its first token, its end, how many attempts it took."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import Cut, Response, connect, post

PATH = "/v1/chat/completions"


@dataclass(slots=True)
class Heard:
    """What has come of an answer so far."""

    text: str = ""
    error: bool = False
    over: bool = False
    """`[DONE]`, or a whole JSON answer."""

    def event(self, data: bytes) -> None:
        """Take the data of one SSE event."""
        if data == b"[DONE]":
            self.over = True
            return
        value = json.loads(data)
        self.error = self.error or "error" in value
        for choice in value.get("choices", ()):
            self.text += choice.get("delta", choice.get("message", {})).get("content") or ""


@dataclass(frozen=True, slots=True)
class Told:
    """One finished call. Times are seconds of `time.monotonic`."""

    started: float
    first: float | None
    """When the first content came; None: never."""
    ended: float
    status: int
    """0: no answer at all."""
    attempts: int
    model: str
    """The one that answered, by the gateway's name."""
    heard: Heard = field(default_factory=Heard)

    @property
    def outcome(self) -> str:
        """`ok`; `broken`: it ended after content had come; `failed`: it ended without any."""
        if self.status == 200 and self.heard.over and not self.heard.error:
            return "ok"
        return "broken" if self.first is not None else "failed"

    @property
    def wasted(self) -> int:
        """Upstream calls that brought this caller nothing."""
        return self.attempts if self.outcome == "failed" else max(0, self.attempts - 1)


async def ask(url: str, body: Mapping[str, Any], limit: float) -> Told:
    """One call on a connection of its own; after `limit` seconds it counts as failed."""
    started = time.monotonic()
    heard, first, answer = Heard(), None, None
    try:
        async with asyncio.timeout(limit), connect(url) as client:
            await client.send(post(PATH, body))
            answer = await client.response()
            async for at in _reading(answer, heard):
                first = first or (at if heard.text else None)
    except (Cut, OSError, TimeoutError):
        heard.over = False
    status, attempts, model = _head(answer)
    return Told(started, first, time.monotonic(), status, attempts, model, heard)


async def _reading(answer: Response, heard: Heard) -> AsyncIterator[float]:
    """Fills `heard` and yields the time of each read."""
    rest = b""
    streamed = (answer.header("content-type") or "").startswith("text/event-stream")
    async for piece in answer.pieces():
        rest += piece.data
        if streamed:
            *events, rest = rest.split(b"\n\n")
            for data in filter(None, map(_data, events)):
                heard.event(data)
        yield piece.at
    if not streamed:
        heard.event(rest)
        heard.over = True
        yield time.monotonic()


def _data(event: bytes) -> bytes:
    return event.removeprefix(b"data: ") if event.startswith(b"data: ") else b""


def _head(answer: Response | None) -> tuple[int, int, str]:
    if answer is None:
        return 0, 0, ""
    return answer.status, int(answer.header("x-turnout-attempts") or 0), answer.header("x-turnout-model") or ""


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of them does not exceed; None: there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None
