"""What is measured: one row per scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.bodies import chat_body


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of traffic. Sizes in bytes, times in seconds."""

    name: str
    title: str
    wish: str
    """Steers the mock upstream, see benchmarks/rig/mock.c."""
    connections: int
    seconds: float
    warmup: float
    request_size: int = 1024
    messages: int = 2
    stream: bool = False
    rate: float | None = None
    """Requests per second, due at fixed times (open loop); None: closed loop."""
    stagger_us: int = 0
    """Between the connections' first requests."""
    quick: bool = True
    """Part of a quick run."""
    latency: bool = False
    """The offered load is fixed and below capacity, so that times can be compared, with the direct path too."""

    @property
    def unit(self) -> Literal["request", "chunk"]:
        """What CPU time is divided by."""
        return "chunk" if self.stream else "request"

    def body(self) -> bytes:
        """The request body, the same for every server."""
        return chat_body(self.request_size, self.wish, messages=self.messages, stream=self.stream)

    def load_arguments(self) -> tuple[str, ...]:
        """Options of the load client."""
        arguments = [f"--connections={self.connections}", f"--seconds={self.seconds}", f"--warmup={self.warmup}"]
        if self.stream:
            arguments.append("--stream")
        if self.rate:
            arguments.append(f"--rate={self.rate}")
        if self.stagger_us:
            arguments.append(f"--stagger-us={self.stagger_us}")
        return tuple(arguments)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("plain_1k", "1 KB request, 1 KB answer, 32 connections", "MOCK:reply=1024;", 32, 2.0, 0.4),
    Scenario(
        "plain_30k",
        "30 KB request in 21 messages, 2 KB answer, 32 connections",
        "MOCK:reply=2048;",
        32,
        2.0,
        0.4,
        request_size=30_000,
        messages=21,
    ),
    Scenario(
        "plain_1m",
        "1 MB request, one long message, 2 connections",
        "MOCK:reply=1024;",
        2,
        2.0,
        0.4,
        request_size=1_000_000,
        messages=1,
        quick=False,
    ),
    Scenario(
        "open_200",
        "1 KB, 200 requests/s, due at fixed times",
        "MOCK:reply=1024;",
        32,
        3.0,
        0.3,
        rate=200,
        latency=True,
    ),
    Scenario(
        "stream_20ms",
        "50 streams, a chunk every 20 ms",
        "MOCK:chunks=50,interval_us=20000;",
        50,
        3.0,
        0.8,
        stream=True,
        stagger_us=400,
        latency=True,
    ),
    Scenario(
        "stream_64k",
        "64 streams, a chunk every 1 ms: 64,000 chunks/s offered",
        "MOCK:chunks=200,interval_us=1000;",
        64,
        2.0,
        0.4,
        stream=True,
        stagger_us=15,
    ),
    Scenario(
        "stream_flat",
        "64 streams as fast as the mock can write",
        "MOCK:chunks=200,interval_us=0;",
        64,
        2.0,
        0.4,
        stream=True,
    ),
    Scenario(
        "stream_1000",
        "1,000 streams, a chunk every 20 ms: 50,000 chunks/s",
        "MOCK:chunks=100,interval_us=20000;",
        1000,
        4.0,
        1.0,
        stream=True,
        stagger_us=1000,
        quick=False,
        latency=True,
    ),
)


def chosen(names: Sequence[str], *, quick: bool) -> tuple[Scenario, ...]:
    """The named scenarios, or all that belong to the run; a quick run halves their time."""
    rows = [row for row in SCENARIOS if (row.name in names if names else row.quick or not quick)]
    return tuple(replace(row, seconds=row.seconds / 2) if quick else row for row in rows)
