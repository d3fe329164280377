"""What an engine says of its work, and how long one waits until it has none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.clock import Tasks
from serving.engine.command import Launch
from serving.engine.liveness import Work, until_idle, work
from serving.engine.process import Process
from tests.unit.serving.engine.fakes import Log, fake_launch

TOLD = """\
# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0"} 4.0
vllm:prompt_tokens_total{engine="0"} 1e3
vllm:generation_tokens_total{engine="0"} 5.0
vllm:generation_tokens_total_other 9
"""


@asynccontextmanager
async def running(launch: Launch) -> AsyncIterator[None]:
    tasks, log = Tasks(), Log()
    process = await Process.start(launch.command, {}, log, 5)
    end = tasks.spawn(process.run())
    try:
        while (await work(launch, 1)) is None:
            pass
        yield
    finally:
        process.stop()
        await end


async def test_all_cores_of_a_replica_count(tmp_path: Path) -> None:
    file = tmp_path / "metrics"
    file.write_text(TOLD)
    launch = fake_launch(metrics=str(file))
    async with running(launch):
        assert await work(launch, 1) == Work(3, 4, 1005)
        file.write_text("vllm:num_requests_running no\n")
        assert await work(launch, 1) is None
    assert await work(launch, 1) is None


@pytest.mark.parametrize(("told", "idle"), [("running 0", True), ("running 1", False), ("waiting 1", False)])
async def test_until_it_has_nothing_to_do(tmp_path: Path, told: str, idle: bool) -> None:
    file = tmp_path / "metrics"
    file.write_text(f"vllm:num_requests_running 0\nvllm:num_requests_{told}\n")
    launch = fake_launch(metrics=str(file))
    async with running(launch):
        assert await until_idle(launch, 0.3, every=0.02) is idle
    assert not await until_idle(launch, 0.1, every=0.02)
