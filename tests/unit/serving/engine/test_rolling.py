"""A rolling restart that cannot go on leaves what runs as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway.clock import Tasks
from serving.engine.command import Launch
from serving.engine.errors import EngineFailed
from serving.engine.replica import Replica, Setting
from serving.engine.rolling import roll
from tests.unit.serving.engine.fakes import Log, ends, fake_command, fake_launch

pytestmark = pytest.mark.seconds

Make = Callable[[Launch], Replica]


class Desk:
    """Fails where a test says so."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.done: list[Any] = []

    async def asked(self) -> frozenset[str]:
        return frozenset()

    async def tell(self, upstream: str, state: str | None) -> None:
        self._do("tell", state)

    async def move(self, upstream: str, replica: int, port: int) -> None:
        self._do("move", port)

    def _do(self, what: str, value: Any) -> None:
        if self.fails == what:
            raise EngineFailed("local", "the database is down")
        self.done.append((what, value))


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def make(log: Log) -> AsyncIterator[Make]:
    tasks, made = Tasks(), []

    def one(launch: Launch) -> Replica:
        made.append(Replica(launch, Setting({}, lambda _: None, log, 10, 5), tasks))
        return made[-1]

    yield one
    for replica in made:
        await replica.stop()
    await tasks.close()


async def up(make: Make, *launches: Launch) -> list[Replica]:
    replicas = [make(launch) for launch in launches]
    for replica in replicas:
        await replica.start()
        await replica.come_up()
        replica.supervise()
    return replicas


def plan_of(replicas: list[Replica]) -> dict[int, Launch]:
    return {replica.launch.replica: replica.launch for replica in replicas}


def pids(log: Log) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in log.lines if "| pid " in line]


async def test_a_successor_that_does_not_come_up_changes_nothing(make: Make, log: Log) -> None:
    (old,) = replicas = await up(make, fake_launch("local"))
    desk, broken = Desk(), fake_command(exit=3, log=["ValueError: a new checkpoint"])

    def successor(launch: Launch) -> Replica:
        return make(Launch(launch.name, broken, launch.port, launch.model, upstream=launch.upstream))

    with pytest.raises(EngineFailed, match="exit code 3: ValueError: a new checkpoint"):
        await roll(replicas, "local", desk, successor, log, plan_of(replicas), follow=0)
    assert replicas == [old]
    assert old.state == "ready"
    assert desk.done == [("tell", "replica 1 of 1: its successor starts")]


async def test_gateways_that_cannot_be_told_keep_the_old_one(make: Make, log: Log) -> None:
    (old,) = replicas = await up(make, fake_launch("local"))
    with pytest.raises(EngineFailed, match="the database is down"):
        await roll(replicas, "local", Desk(fails="move"), make, log, plan_of(replicas), follow=0)
    assert replicas == [old]
    assert old.state == "ready"
    assert ends(pids(log)[1])


async def test_the_old_one_ends_though_nobody_can_be_told_any_more(make: Make, log: Log) -> None:
    replicas, desk = await up(make, fake_launch("local")), Desk()

    async def move(upstream: str, replica: int, port: int) -> None:
        desk.fails = "tell"

    desk.move = move  # type: ignore[method-assign]
    await roll(replicas, "local", desk, make, log, plan_of(replicas), follow=0)
    assert ends(pids(log)[0])
    assert replicas[0].state == "ready"


async def test_calls_that_do_not_end_are_waited_for_in_vain(make: Make, log: Log) -> None:
    busy = fake_launch("local", metrics="vllm:num_requests_running 1\n")
    replicas = await up(make, busy)
    await roll(replicas, "local", Desk(), make, log, plan_of(replicas), follow=0, drain=0.3)
    assert [replica.launch.port for replica in replicas] != [busy.port]
    assert "turnout: engine local: calls still run after 0.3 s, it ends all the same" in log.lines
    assert ends(pids(log)[0])


async def test_other_replicas_than_run_take_a_start(make: Make, log: Log) -> None:
    (old,) = replicas = await up(make, fake_launch("local"))
    for plan, told in (({}, "has 0 replicas, 1 run"), ({0: old.launch, 1: old.launch}, "has 2 replicas, 1 run")):
        with pytest.raises(EngineFailed, match=told):
            await roll(replicas, "local", Desk(), make, log, plan, follow=0)
    assert (replicas, old.state) == ([old], "ready")
