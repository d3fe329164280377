"""One replica's life: restarts with a pause and a limit, what is frozen is ended, what is given up says why."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.clock import Tasks
from serving.engine import replica as module
from serving.engine.command import Launch
from serving.engine.liveness import Patience
from serving.engine.replica import Replica, Setting
from tests.unit.serving.engine.fakes import Log, ends, fake_launch

pytestmark = pytest.mark.seconds

QUICK = Patience(every=0.05, answer=1.0, silent=2, stuck=1.0)
Make = Callable[[Launch], Replica]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def make(log: Log) -> AsyncIterator[Make]:
    tasks, made = Tasks(), []
    setting = Setting({}, lambda _: None, log, 10, 5, QUICK, pauses=(0.01, 0.02))

    def one(launch: Launch) -> Replica:
        made.append(Replica(launch, setting, tasks))
        return made[-1]

    yield one
    for replica in made:
        await replica.stop()
    await tasks.close()
    assert all(ends(pid, 0) for pid in pids(log))


def pids(log: Log) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in log.lines if "| pid " in line]


def said(log: Log) -> list[str]:
    return [line.removeprefix("turnout: engine local: ") for line in log.lines if line.startswith("turnout:")]


async def up(replica: Replica) -> Replica:
    await replica.start()
    await replica.come_up()
    replica.supervise()
    return replica


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0.01)


async def test_one_that_is_killed_is_back(make: Make, log: Log) -> None:
    replica = await up(make(fake_launch(restarts=2)))
    os.kill(pids(log)[0], signal.SIGKILL)
    await until(lambda: len(pids(log)) == 2 and replica.state == "ready")
    assert replica.restarts == 1
    assert said(log) == [
        "it was killed (signal 9), as the system does when memory runs out; free memory, or use a smaller model; it is "
        "started again in 0.01 s (restart 1 of 2 in 10 min)",
        f"ready again on port {replica.launch.port}",
    ]


async def test_a_crash_loop_ends_with_the_engines_last_words(make: Make, log: Log, tmp_path: Path) -> None:
    launch = fake_launch(restarts=2, log=["ValueError: no room", "RuntimeError: Engine core initialization failed."],
                         exit=1, once=str(tmp_path / "started"))  # fmt: skip
    replica = await up(make(launch))
    os.kill(pids(log)[0], signal.SIGKILL)
    failure = await asyncio.wait_for(replica.over, 20)
    assert failure.reason == "it ended with exit code 1: ValueError: no room"
    assert (replica.state, len(pids(log))) == ("failed", 3)
    assert said(log)[-1] == f"{failure.reason}; given up after 2 restarts in 10 min"


async def test_without_restarts_the_first_end_is_the_last(make: Make, log: Log) -> None:
    replica = await up(make(fake_launch()))
    os.kill(pids(log)[0], signal.SIGKILL)
    failure = await asyncio.wait_for(replica.over, 20)
    assert said(log) == [failure.reason]


async def test_restarts_of_long_ago_do_not_count(make: Make, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", 0.05)
    replica = await up(make(fake_launch(restarts=1)))
    for number in (1, 2, 3):
        await until(lambda number=number: len(pids(log)) == number and replica.state == "ready")  # type: ignore[misc]
        await asyncio.sleep(0.1)
        os.kill(pids(log)[-1], signal.SIGKILL)
    await until(lambda: len(pids(log)) == 4)


async def test_one_that_is_frozen_is_ended_and_started_again(make: Make, log: Log) -> None:
    replica = await up(make(fake_launch(restarts=1)))
    first = pids(log)[0]
    os.kill(first, signal.SIGSTOP)
    await until(lambda: len(pids(log)) == 2 and replica.state == "ready")
    assert ends(first, 0)
    assert said(log)[0].startswith("no good answer to /health 2 times, each in 1 s: frozen, or dead inside; it is")


async def test_one_that_runs_and_counts_no_token_is_stuck(make: Make, log: Log, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    metrics.write_text("vllm:num_requests_running 0\nvllm:generation_tokens_total 5\n")
    replica = await up(make(fake_launch(restarts=1, metrics=str(metrics))))
    await asyncio.sleep(0.6)
    for tokens in range(10):
        metrics.write_text(f"vllm:num_requests_running 2\nvllm:generation_tokens_total {tokens}\n")
        await asyncio.sleep(0.1)
    assert (replica.state, said(log)) == ("ready", [])
    await until(lambda: bool(said(log)))
    metrics.write_text("vllm:num_requests_running 0\n")
    assert said(log)[0].startswith("it runs 2 requests and has not counted a token for 1 s: stuck; it is started again")
    await until(lambda: len(pids(log)) == 2 and replica.state == "ready")


async def test_a_stop_while_it_waits_to_be_started_again(make: Make, log: Log) -> None:
    replica = make(fake_launch(restarts=5))
    replica._setting = Setting({}, lambda _: None, log, 10, 5, QUICK, pauses=(60,))
    await up(replica)
    os.kill(pids(log)[0], signal.SIGKILL)
    await until(lambda: replica.state == "restarting")
    await replica.stop()
    assert (replica.state, len(pids(log))) == ("ended", 1)


async def test_a_drained_one_is_not_started_again(make: Make, log: Log) -> None:
    replica = await up(make(fake_launch(restarts=5)))
    replica.drain()
    os.kill(pids(log)[0], signal.SIGKILL)
    await asyncio.sleep(0.3)
    assert (said(log), len(pids(log))) == ([], 1)
