"""Which models are watched, what of a call is taken, and what becomes of a finding while the database is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.alarm import alarms as module
from gateway.alarm.alarms import Alarms, identity
from gateway.alarm.baselines import Baselines
from gateway.call import Attempt, Call, Tried
from gateway.changes import Changes, Override
from gateway.clock import Tasks
from gateway.config.runtime import Alarm as Configured
from gateway.config.runtime import Engine, Model, Runtime
from gateway.database import DatabaseDown
from gateway.speculation import Drafted, Governed
from gateway.telemetry.logs import Writer, logger
from tests.fakes import to_json
from tests.unit.alarm.test_baselines import Lines
from tests.unit.building import a_call, a_model, a_runtime, an_upstream

TOOLS = to_json({"model": "m", "messages": [], "stream": True, "tools": [{}]})


def speculating(name: str = "m", action: str = "move", **engine: Any) -> Model:
    alarm = Configured(cast(Any, action), stall_seconds=2.0)
    settings = {"speculative": {"method": "mtp"}, "alarm": alarm, **engine}
    return a_model(name, replace(an_upstream(f"of {name}"), engine=Engine(Path("checkpoint"), 9, **settings)))


class World:
    """What the alarms act on."""

    def __init__(self, tasks: Tasks) -> None:
        self.lines, self.down, self.well = Lines(), 0, True
        self.done: list[tuple[Any, ...]] = []
        self.counted: list[tuple[str, ...]] = []
        log = logger(cast(Writer, self.lines), as_text=False)
        self.alarms = Alarms(tasks, log, self, Baselines(None, log), self._count, lambda model: self.well)
        self.alarms.begin()

    def _count(self, model: str, kind: str, what: str, times: int) -> None:
        self.counted += [(model, kind, what)] * times

    async def record(self, by: str, action: str, target: str, detail: dict[str, Any]) -> None:
        self._act(by, action, target, detail["what"])

    async def move_traffic(self, model: str, kind: str, reason: str | None, by: str) -> None:
        self._act(by, "move", model, kind)

    def _act(self, *what: Any) -> None:
        if self.down:
            self.down -= 1
            raise DatabaseDown("gone")
        self.done.append(what)

    def serve(self, *models: Model, changes: Changes = Changes()) -> Runtime:  # noqa: B008 - frozen
        runtime = a_runtime(*models)
        self.alarms.configure(runtime, changes)
        return runtime


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.001, 0.001))
    monkeypatch.setattr(module, "DOUBT_SECONDS", 0.0)
    tasks = Tasks()
    yield World(tasks)
    await tasks.close()


def answered(runtime: Runtime, model: Model, body: bytes = TOOLS, **outcome: Any) -> Call:
    call = a_call(body, runtime=runtime)
    call.answered, call.tried = Attempt(model, ""), [Tried(model.name, model.upstream.name, 0.0)]
    for name, value in outcome.items():
        setattr(call, name, value)
    return call


async def settled() -> None:
    await asyncio.sleep(0.02)


def test_only_engines_that_speculate_are_watched() -> None:
    async def main() -> None:
        world = World(Tasks())
        world.serve(speculating("a"), speculating("b", action="off"), speculating("c", speculative=None), a_model("d"))
        assert [document["model"] for document in world.alarms.documents()] == ["a"]

    asyncio.run(main())


async def test_stalls_by_the_files_seconds(world: World) -> None:
    model = speculating()
    runtime = world.serve(model)
    for _ in range(20):
        world.alarms.observe(answered(runtime, model, governed=Governed(tool=True, pause=1.9)))
    assert world.counted == []
    for _ in range(10):
        world.alarms.observe(answered(runtime, model, governed=Governed(tool=True, pause=2.1)))
    await settled()
    assert world.counted == [("m", "tool", "stalls")]
    assert world.done == [("alarm", "alarm.found", "m", "stalls"), ("alarm", "move", "m", "tool")]


async def test_warn_does_not_move_and_text_is_never_moved(world: World) -> None:
    for action, body, governed in (
        ("warn", TOOLS, Governed(tool=True)),
        ("move", b'{"model":"m","messages":[]}', None),
    ):
        model = speculating(action=action)
        runtime = world.serve(model)
        for _ in range(200):
            drafted = Drafted(10, 20, 0, (10, 0, 0))
            world.alarms.observe(answered(runtime, model, body, drafted=drafted, governed=governed))
        await settled()
        assert {what[1] for what in world.done} == {"alarm.found"}
    assert [kind for _, kind, _ in world.counted] == ["tool", "text"]


async def test_a_database_that_is_down_for_a_moment(world: World) -> None:
    model, world.down = speculating(), 3
    runtime = world.serve(model)
    for _ in range(10):
        world.alarms.observe(answered(runtime, model, governed=Governed(tool=True, broken=True)))
    await settled()
    assert sorted(what[1] for what in world.done) == ["alarm.found", "move"]
    world.down = 99
    world.alarms.configure(runtime, Changes((Override("traffic", "m", {"moved": {"tool": "x"}}, 0.0, "alarm"),)))
    world.alarms.configure(runtime, Changes())  # taken back
    for _ in range(10):
        world.alarms.observe(answered(runtime, model, governed=Governed(tool=True, broken=True)))
    await settled()
    assert any("its action was not taken" in line for line in world.lines.lines)
    assert world.counted == [("m", "tool", "rejections")] * 2


@pytest.mark.parametrize("well", [True, False])
async def test_failures_count_only_while_the_engine_is_well(world: World, well: bool) -> None:
    model, other = speculating("m"), a_model("other")
    runtime, world.well = world.serve(model, other), well
    for _ in range(10):
        call = answered(runtime, other)
        call.tried.insert(0, Tried("m", "of m", 0.0, "server_error"))
        world.alarms.observe(call)
        timeout = answered(runtime, other)
        timeout.tried.insert(0, Tried("m", "of m", 0.0, "timeout"))
        world.alarms.observe(timeout)
    await settled()
    assert world.counted == ([("m", "tool", "rejections")] if well else [])


async def test_another_configuration_keeps_what_has_not_changed(world: World) -> None:
    model = speculating()
    runtime = world.serve(model, a_model("x"))
    world.alarms.observe(answered(runtime, model, governed=Governed(tool=True)))
    world.serve(model)
    assert world.alarms.documents()[0]["kinds"][0]["calls"] == 1
    world.serve(speculating(action="warn"))
    assert world.alarms.documents()[0]["kinds"] == []


def test_a_checkpoint_is_known_by_its_files(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 9, speculative={"method": "mtp", "num_speculative_tokens": 1})
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"one")
    first = identity(engine)
    assert len(first) == 16
    assert identity(replace(engine, port=10)) == first
    assert identity(replace(engine, speculative={"method": "mtp", "num_speculative_tokens": 2})) != first
    (tmp_path / "model.safetensors").write_bytes(b"other")
    assert identity(engine) != first
    assert identity(replace(engine, checkpoint=tmp_path / "gone")) != first
