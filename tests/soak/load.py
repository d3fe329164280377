"""The load client (benchmarks/rig/load.c) as a process beside the test, and what one asks the mock upstream for."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.servers import BUILD
from tests.harness import Served

Report = dict[str, Any]
"""What the load client prints: counts, and times in microseconds (p50, p90, p99, max)."""
FAULTS = ("failed", "unfinished", "lost", "duplicated", "reordered")
DRAIN = 30.0
"""Seconds after its time in which the load client must have ended."""


def wish(model: str, chunks: int, interval_ms: int) -> dict[str, Any]:
    """The body of a streamed call that the mock answers by so many chunks, one every `interval_ms` (0: at once)."""
    text = f"MOCK:chunks={chunks},interval_us={interval_ms * 1000};"
    return {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}


@asynccontextmanager
async def loading(gw: Served, body: Any, seconds: float, *options: str) -> AsyncIterator[Process]:
    """A running load client; whoever leaves early ends it."""
    file = Path(gw.folder) / f"body-{id(body)}.json"
    file.write_bytes(body if isinstance(body, bytes) else json.dumps(body).encode())
    arguments = [f"--port={gw.port}", f"--body={file}", f"--seconds={seconds}", *options]
    process = await asyncio.create_subprocess_exec(BUILD / "load", *arguments, stdin=DEVNULL, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def load(gw: Served, body: Any, seconds: float, *options: str) -> Report:
    """The report of one run, in which nothing went wrong."""
    async with asyncio.timeout(seconds + DRAIN), loading(gw, body, seconds, *options) as process:
        out, _ = await process.communicate()
    report: Report = json.loads(out)
    assert {fault: report[fault] for fault in FAULTS} == dict.fromkeys(FAULTS, 0), report
    return report


def shown(report: Report, name: str) -> str:
    """Percentiles of one of its times, in milliseconds."""
    return ", ".join(f"{p} {report[name][p] / 1000:.1f}" for p in ("p50", "p99", "max")) + " ms"
