"""Real engines under calls: one killed, one frozen, and a rolling restart. What callers saw is printed."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from serving.demo.questions import load_questions
from tests.engine.test_acceptance import DEMO, free_port
from tests.fakes import Upstream, fetch
from tests.fakes.client import Response

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
CALLERS = 8
LIMIT = 150.0
CONFIG = """
version: 1
gateway: {{port: {port}, timeouts: {{first_event: 20, idle: 20, total: 90}}}}
upstreams:
  local:
    engine:
      checkpoint: {checkpoint}
      port: {engine}
      speculative: {{method: mtp, num_speculative_tokens: 1}}
      args: {{max-model-len: 1024}}
  other: {{base_url: "{other}", api_key: sk-other}}
models:
  quality: {{upstream: local, model: demo-ft}}
  spare: {{upstream: other, model: fake}}
routes:
  auto: {{default: quality, fallback: [spare], sticky: none}}
"""
PROMPTS = [prompt for q in load_questions() for texts in q.prompts.values() for prompt in texts.trained]


class Up:
    """`turnout up` as a process; its log."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.process = process
        self.lines: list[str] = []

    async def read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode(errors="replace").rstrip())

    async def until(self, words: str, count: int = 1) -> str:
        """The line with these words (the last of so many)."""
        async with asyncio.timeout(LIMIT):
            while len(found := [line for line in self.lines if words in line]) < count:
                assert self.process.returncode is None, self.lines[-30:]
                await asyncio.sleep(0.05)
        return found[count - 1]

    def group(self) -> int:
        """The process group of the engine's newest API server."""
        pids = re.findall(r"\(APIServer pid=(\d+)\)", "\n".join(self.lines))
        return os.getpgid(int(list(dict.fromkeys(pids))[-1]))  # the old one may speak last


def alive(group: int) -> list[str]:
    """The processes of a group, but for those that are only waited for."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = file.read_text().rpartition(")")
        except OSError:
            continue
        state, _, owner = rest.split()[:3]
        if int(owner) == group and state not in "ZX":
            found.append(name)
    return found


async def is_ready(url: str) -> bool:
    try:
        return (await fetch(url, "/health/ready")).status == 200
    except OSError:
        return False


@asynccontextmanager
async def turnout_up(folder: Path, other: Upstream) -> AsyncIterator[Up]:
    port = free_port()
    file = folder / "routing.yaml"
    file.write_text(CONFIG.format(port=port, engine=free_port(), checkpoint=DEMO, other=other.url))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "up", "--config", str(file)),
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    up = Up(process, port)
    reading = asyncio.create_task(up.read())
    try:
        await up.until("turnout: engine local: ready (")
        async with asyncio.timeout(30):
            while not await is_ready(up.url):  # noqa: ASYNC110 - a process has no event
                await asyncio.sleep(0.05)
        yield up
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await reading


class Seen:
    """What callers saw."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.failures: list[Any] = []
        self.longest = 0.0
        self.began = time.monotonic()
        self.elsewhere: list[float] = []
        """When the fallback answered, in seconds since the beginning."""

    def __str__(self) -> str:
        return f"{dict(self.kinds)}, longest call {self.longest:.1f} s"


async def asked(up: Up, max_tokens: int, prompt: str, stream: bool = False) -> Response:
    messages = [{"role": "user", "content": prompt}]
    body = {"model": "auto", "messages": messages, "temperature": 0, "max_tokens": max_tokens, "stream": stream}
    return await fetch(up.url, "/v1/chat/completions", body)


async def caller(up: Up, number: int, seen: Seen, over: asyncio.Event) -> None:
    """One call after the other, plain and streamed, until it is over."""
    chosen = random.Random(number)
    while not over.is_set():
        stream, began = chosen.random() < 0.5, time.monotonic()
        answer = await asked(up, 60, chosen.choice(PROMPTS), stream=stream)
        seen.longest = max(seen.longest, time.monotonic() - began)
        whole = answer.status == 200 and (not stream or answer.body.endswith(b"data: [DONE]\n\n"))
        if whole and b'"error"' not in answer.body:
            seen.kinds[f"ok from {answer.header('x-turnout-model')}"] += 1
            if answer.header("x-turnout-model") == "spare":
                seen.elsewhere.append(round(time.monotonic() - seen.began, 1))
        else:
            seen.kinds["broken off after the first byte" if answer.status == 200 else f"HTTP {answer.status}"] += 1
            seen.failures.append(answer)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def under_load(up: Up) -> AsyncIterator[Seen]:
    """Callers while the block runs, three seconds before and after it."""
    seen, over = Seen(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(CALLERS):
            group.create_task(caller(up, number, seen, over))
        await asyncio.sleep(3)
        try:
            yield seen
            await asyncio.sleep(3)
        finally:
            over.set()


async def test_killed_frozen_and_restarted_under_load(tmp_path: Path) -> None:
    async with Upstream() as other, turnout_up(tmp_path, other) as up:
        async with under_load(up) as seen:
            os.killpg(up.group(), signal.SIGKILL)
            await up.until("it is started again in 1 s")
            await up.until("ready again on port")
            await asyncio.sleep(5)
        print(f"killed: {seen}")
        assert set(seen.kinds) <= {"ok from quality", "ok from spare", "broken off after the first byte"}
        assert seen.kinds["ok from quality"] > 0
        assert seen.kinds["ok from spare"] > 0
        assert seen.kinds["broken off after the first byte"] <= CALLERS

        async with under_load(up) as seen:
            os.killpg(up.group(), signal.SIGSTOP)
            await up.until("frozen, or dead inside")
            await up.until("ready again on port", 2)
            await asyncio.sleep(5)
        print(f"frozen: {seen}")
        assert set(seen.kinds) <= {"ok from quality", "ok from spare", "broken off after the first byte"}
        assert seen.kinds["broken off after the first byte"] <= CALLERS
        assert seen.longest < 90

        before = up.group()
        async with asyncio.timeout(LIMIT):  # what the frozen one has left behind is over: its breaker is closed
            while (await asked(up, 1, "hello")).header("x-turnout-model") != "quality":  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        async with under_load(up) as seen:
            command = [sys.executable, "-m", "gateway.cli", "engine", "local", "--restart"]
            restart = await asyncio.create_subprocess_exec(
                *command, "--config", str(tmp_path / "routing.yaml"), cwd=ROOT, stdout=subprocess.PIPE
            )
            async with asyncio.timeout(LIMIT):
                told, _ = await restart.communicate()
            assert restart.returncode == 0, told
        print(f"rolling restart: {seen}")
        print(told.decode())
        assert seen.failures == []
        assert set(seen.kinds) == {"ok from quality"}, f"sent to the fallback after {seen.elsewhere} s"
        assert up.group() != before
        assert alive(before) == []
        last = up.group()
    assert alive(last) == []
