from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from serving.engine.command import Launch
from serving.engine.errors import EngineFailed
from serving.engine.ready import Progress
from serving.engine.supervise import Engines
from tests.unit.serving.engine.fakes import Log, ends, fake_launch, number_after

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]


def pids(log: Log) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in log.lines if "| pid " in line]


async def test_several_engines_are_ready_together_and_gone_together() -> None:
    log = Log()
    steps: list[Progress] = []
    async with Engines([fake_launch("a"), fake_launch("b")], {}, steps.append, log) as engines:
        await engines.ready()
    assert sorted(step.name for step in steps if step.stage == "ready") == ["a", "b"]
    assert len(pids(log)) == 2
    assert all(ends(pid, 0) for pid in pids(log))


async def test_every_line_of_the_log_carries_the_engines_name() -> None:
    log = Log()
    async with Engines([fake_launch("local[1]", log=["hello"])], {}, say=log) as engines:
        await engines.ready()
    assert log.lines[0] == "local[1] | hello"
    assert all(line.startswith("local[1] | ") for line in log.lines)


async def test_no_engine_is_no_work() -> None:
    async with Engines([], {}) as engines:
        await engines.ready()


async def test_C48_one_that_dies_during_its_start_is_told_with_its_reason() -> None:
    log = Log()
    broken = fake_launch("broken", log=["api_server.py: error: unrecognized arguments: --x"], exit=2)
    with pytest.raises(EngineFailed) as failed:
        async with Engines([fake_launch("slow", health=[503] * 9999), broken], {}, say=log) as engines:
            await engines.ready()
    assert failed.value.name == "broken"
    assert failed.value.reason == "this vLLM does not know --x; correct or remove it under engine.args"
    assert str(failed.value).startswith("engine broken: this vLLM")
    assert all(ends(pid, 0) for pid in pids(log))


async def test_C48_one_that_dies_when_it_is_first_used_is_told_too() -> None:
    with pytest.raises(EngineFailed, match="exit code 1: RuntimeError: the fake engine has had enough"):
        async with Engines([fake_launch(generates="dies")], {}, say=Log()) as engines:
            await engines.ready()


async def test_C48_one_that_is_not_ready_in_time_is_ended() -> None:
    log = Log()
    with pytest.raises(EngineFailed, match=r"not ready after 1 s \(starting\)"):
        async with Engines([fake_launch(health=[503] * 9999)], {}, say=log, start_timeout=1) as engines:
            await engines.ready()
    assert ends(pids(log)[0], 0)


async def test_C48_one_that_dies_later_is_reported_in_one_line() -> None:
    log = Log()
    async with Engines([fake_launch("a"), fake_launch("b")], {}, say=log) as engines:
        await engines.ready()
        os.kill(number_after("b | pid", log.lines), signal.SIGKILL)
        failure = await engines.failure()
        assert (failure.name, failure.reason[:21]) == ("b", "it was killed (signal")
    assert log.lines.count(f"turnout: {failure}") == 1
    assert not [line for line in log.lines if line.startswith("turnout: engine a")]


async def test_the_order_to_stop_is_no_failure() -> None:
    log = Log()
    async with Engines([fake_launch()], {}, say=log) as engines:
        await engines.ready()
    assert not [line for line in log.lines if line.startswith("turnout: engine")]


async def test_a_taken_port_is_told_before_anything_starts() -> None:
    log = Log()
    free, taken = fake_launch("free"), fake_launch("taken")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", taken.port))
        holder.listen()
        with pytest.raises(EngineFailed, match=f"engine taken: port {taken.port} cannot be used"):
            async with Engines([free, taken], {}, say=log):
                raise AssertionError("it must not start")
    assert log.lines == []


async def test_a_start_that_fails_half_way_leaves_nothing_running(tmp_path: Path) -> None:
    log = Log()
    first, second = fake_launch("first"), fake_launch("second")
    second = replace(second, command=replace(second.command, cwd=tmp_path / "gone"))
    with pytest.raises(FileNotFoundError):
        async with Engines([first, second], {}, say=log):
            raise AssertionError("it must not start")
    assert all(ends(pid, 0) for pid in pids(log))


async def test_the_last_one_that_is_given_up_ends_it_all() -> None:
    log = Log()
    async with Engines([fake_launch("a"), fake_launch("b")], {}, say=log) as engines:
        await engines.ready()
        ended = asyncio.create_task(engines.all_over())
        for name in ("b", "a"):
            assert not ended.done()
            os.kill(number_after(f"{name} | pid", log.lines), signal.SIGKILL)
            await asyncio.sleep(0.3)
        assert (await ended).name == "b"
        assert [state["state"] for state in engines.states()] == ["failed", "failed"]


class Desk:
    """Where a restart is asked for; what it is told."""

    def __init__(self, *asked: str) -> None:
        self.wanted = frozenset(asked)
        self.told: list[str | None] = []
        self.moved: list[tuple[str, int, int]] = []
        self.over = asyncio.Event()

    async def asked(self) -> frozenset[str]:
        return self.wanted

    async def tell(self, upstream: str, state: str | None) -> None:
        self.told.append(state)
        self.wanted -= {upstream}
        if state is None or state.startswith("failed"):
            self.over.set()

    async def move(self, upstream: str, replica: int, port: int) -> None:
        self.moved.append((upstream, replica, port))


async def test_a_rolling_restart_that_is_asked_for() -> None:
    log, desk = Log(), Desk("local", "nobody's")
    launches = [fake_launch("local[0]"), fake_launch("local[1]"), fake_launch("other")]
    async with Engines(launches, {}, say=log) as engines:
        await engines.ready()
        before = [state["port"] for state in engines.states()]
        engines.serve(desk, every=0.05, follow=0.05)
        async with asyncio.timeout(30):
            await desk.over.wait()
        after = [state["port"] for state in engines.states()]
        assert {state["state"] for state in engines.states()} == {"ready"}
    assert before[2] == after[2]
    assert not {*before[:2]} & {*after[:2]}
    assert desk.moved == [("local", 0, after[0]), ("local", 1, after[1])]
    assert desk.told[-1] is None
    assert len(pids(log)) == 5
    assert all(ends(pid, 0) for pid in pids(log))


async def test_a_rolling_restart_starts_what_is_planned_then() -> None:
    """Not what was started once: its checkpoint may be another by now."""
    log, desk = Log(), Desk("local")
    changed = fake_launch("local", log=["the new checkpoint"])

    async with Engines([fake_launch("local")], {}, say=log, replan=lambda upstream: {0: changed}) as engines:
        await engines.ready()
        engines.serve(desk, every=0.05, follow=0.0)
        async with asyncio.timeout(30):
            await desk.over.wait()
    assert any("the new checkpoint" in line for line in log.lines)


async def test_a_rolling_restart_that_cannot_be_planned_changes_nothing() -> None:
    log, desk = Log(), Desk("local")

    def replan(upstream: str) -> dict[int, Launch]:
        raise EngineFailed(upstream, "the checkpoint has lost its MTP layers")

    async with Engines([fake_launch("local")], {}, say=log, replan=replan) as engines:
        await engines.ready()
        before = engines.states()
        engines.serve(desk, every=0.05, follow=0.0)
        async with asyncio.timeout(30):
            await desk.over.wait()
        assert engines.states() == before
    assert desk.told[-1] is not None
    assert "lost its MTP layers" in desk.told[-1]


async def test_a_stop_in_the_middle_of_a_rolling_restart_leaves_nothing(tmp_path: Path) -> None:
    log, desk = Log(), Desk("local")
    busy = fake_launch("local", metrics="vllm:num_requests_running 1\n")
    async with Engines([busy], {}, say=log) as engines:
        await engines.ready()
        engines.serve(desk, every=0.05, follow=0.0)
        async with asyncio.timeout(30):
            while len(desk.told) < 2:  # noqa: ASYNC110 - the old one waits for its calls
                await asyncio.sleep(0.02)
    assert len(pids(log)) == 2
    assert all(ends(pid, 0) for pid in pids(log))


PARENT = """
import asyncio, sys
from tests.unit.serving.engine.fakes import fake_launch
from serving.engine.supervise import Engines

async def main():
    async with Engines([fake_launch(helper=True)], {}, say=lambda line: print(line, flush=True), grace=0.2) as engines:
        await engines.ready()
        print("up", flush=True)
        await engines.failure()

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_engines_do_not_outlive_their_parent_however_it_ends(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout
        lines: list[str] = []
        while not lines or lines[-1] != "up":
            lines.append(parent.stdout.readline().rstrip())
        parent.send_signal(number)
        assert parent.wait(30) != 0
    assert ends(number_after("pid", lines))
    assert ends(number_after("helper", lines))
