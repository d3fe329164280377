"""The alarm on speculation end to end: a scripted engine goes wrong under calls, and what is done about it."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gateway.database import Database
from tests.conftest import StartGateway
from tests.fakes import DONE, Exchange, Pause, Reply, Sse, Step, Upstream, chunk, completion, error
from tests.harness import LocalGateway, config_for

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
JSON_MODE: dict[str, Any] = {"response_format": {"type": "json_object"}}
pytestmark = pytest.mark.seconds

ADMIN = {"x-api-key": "sk-admin-key"}
LIMIT = 20.0


def speculating(engine: Upstream, other: Upstream, action: str = "move", stall: float = 5) -> dict[str, Any]:
    """`m0` on an engine that speculates, then `m1`."""
    config = config_for(engine, other, gateway={"admin_key": ADMIN["x-api-key"], "breaker": {"failures": 50}})
    config["upstreams"]["u0"] = {
        "engine": {
            "checkpoint": "checkpoint",
            "port": engine.port,
            "speculative": {"method": "mtp", "num_speculative_tokens": 2},
            "alarm": {"action": action, "stall_seconds": stall},
        }
    }
    return config


def drafts(rate: float, chosen: random.Random) -> dict[str, Any]:
    """vLLM's figures of one answer whose two draft tokens are accepted at this rate."""
    steps = chosen.randint(5, 40)
    histogram = [0, 0, 0]
    for _ in range(steps):
        first = chosen.random() < rate
        histogram[first + (first and chosen.random() < rate)] += 1
    accepted = histogram[1] + 2 * histogram[2]
    told = {"num_spec_steps": steps, "num_draft_tokens": 2 * steps, "num_accepted_draft_tokens": accepted}
    return {"metrics": {"speculative_decoding": {**told, "acceptance_histogram": histogram}}}


class Engine:
    """Answers chat calls as an engine with this acceptance does."""

    def __init__(self, upstream: Upstream, rate: float) -> None:
        self.rate = rate
        self._chosen = random.Random(5)
        upstream.script(self.answer, path="/completions", times=None)
        upstream.script(Reply(b"", separate=False), path="/health", times=None)

    async def answer(self, exchange: Exchange) -> None:
        asked = json.loads(exchange.request.body)
        text = "{}" if "response_format" in asked else "x"
        await Reply(completion(text, extra=drafts(self.rate, self._chosen)))(exchange)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database("sqlite:///t.db", tmp_path)


async def until(condition: Any) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - what is done is done beside the calls
            await asyncio.sleep(0.01)


def found(gw: LocalGateway) -> list[dict[str, Any]]:
    return gw.log(event="speculation goes wrong")


async def calls_until_found(gw: LocalGateway, most: int, **fields: Any) -> int:
    """How many calls it took."""
    before = len(found(gw))
    for number in range(most):
        assert (await gw.chat(**fields)).status == 200
        if len(found(gw)) > before:
            return number + 1
    raise AssertionError(f"nothing was found in {most} calls")


async def state(gw: LocalGateway) -> dict[str, Any]:
    answer = await gw.fetch("/admin/state", headers=ADMIN)
    assert answer.status == 200, answer.body
    document: dict[str, Any] = answer.json()
    return document


async def until_moved(gw: LocalGateway, *kinds: str) -> None:
    """Until just these calls of `m0` go to the next model: in force a moment after it is logged."""
    async with asyncio.timeout(LIMIT):
        while set((await state(gw))["models"][0]["moved"]) != {*kinds}:  # noqa: ASYNC110 - see `until`
            await asyncio.sleep(0.01)


async def test_json_answers_that_collapse_are_moved_and_taken_back(
    upstream: Upstream, second: Upstream, gateway: StartGateway, database: Database
) -> None:
    engine = Engine(upstream, rate=0.8)
    gw = await gateway(speculating(upstream, second), database=database)
    for _ in range(210):
        assert (await gw.chat(**JSON_MODE)).status == 200
    assert found(gw) == []
    engine.rate = 0.0
    assert await calls_until_found(gw, 40, **JSON_MODE) <= 30
    (finding,) = found(gw)
    assert (finding["model"], finding["kind"], finding["what"]) == ("m0", "json", "collapse")
    await until_moved(gw, "json")
    moved = await gw.chat(**JSON_MODE)
    assert moved.header("x-turnout-model") == "m1"
    assert (await gw.chat()).header("x-turnout-model") == "m0", "text stays"
    assert (await gw.chat(model="m0", **JSON_MODE)).header("x-turnout-model") == "m0", "named by the client"
    samples = await gw.metrics(ADMIN)
    assert samples.total("turnout_spec_decode_alarms_total", model="m0", kind="json", what="collapse") == 1
    assert samples.total("turnout_spec_decode_alarms_total", model="m0", kind="tool") == 0
    assert sum(name == "turnout_spec_decode_alarms_total" for name, _, _ in samples.rows) == 3 * 4
    told = await state(gw)
    (model,) = told["speculation"]
    (kind,) = [kind for kind in model["kinds"] if kind["kind"] == "json"]
    assert [f["what"] for f in kind["findings"]] == ["collapse"]
    assert kind["baseline"]["final"]
    assert len(kind["baseline"]["per_position"]) == 2
    audit = (await gw.fetch("/admin/audit", headers=ADMIN)).json()
    assert {"alarm.found", "traffic.move"} <= {row["action"] for row in audit}
    engine.rate = 0.8
    back = await gw.fetch("/admin/models/m0/traffic", {"kind": "json", "moved": False}, headers=ADMIN)
    assert back.status == 200
    await until_moved(gw)
    assert (await gw.chat(**JSON_MODE)).header("x-turnout-model") == "m0"
    assert [f for k in (await state(gw))["speculation"][0]["kinds"] for f in k["findings"]] == []


async def test_a_drift_is_only_told_where_the_file_says_warn(
    upstream: Upstream, second: Upstream, gateway: StartGateway, database: Database
) -> None:
    engine = Engine(upstream, rate=0.8)
    gw = await gateway(speculating(upstream, second, action="warn"), database=database)
    for _ in range(210):
        await gw.chat(**JSON_MODE)
    engine.rate = 0.5
    assert await calls_until_found(gw, 150, **JSON_MODE) <= 120
    assert found(gw)[0]["what"] == "drift"
    assert (await gw.chat(**JSON_MODE)).header("x-turnout-model") == "m0"
    assert gw.log(action="traffic.move") == []
    engine.rate = 0.8
    await_over = 0
    while not gw.log(event="speculation is well again"):
        await gw.chat(**JSON_MODE)
        await_over += 1
        assert await_over < 200


async def test_a_checkpoint_that_drafts_nothing_from_its_first_call_on(
    upstream: Upstream, second: Upstream, gateway: StartGateway, database: Database
) -> None:
    Engine(upstream, rate=0.0)
    gw = await gateway(speculating(upstream, second), database=database)
    assert await calls_until_found(gw, 200) <= 150
    assert found(gw)[0]["what"] == "collapse"


def tool_call(*pauses: float) -> Step:
    """A stream whose tool call pauses before each piece of its arguments."""
    head = chunk(tool_calls=[{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}])
    pieces = ["{", '"a"', ":", "1}"]
    steps: list[Any] = [head]
    for number, piece in enumerate(pieces):
        if number < len(pauses) and pauses[number]:
            steps.append(Pause(pauses[number]))
        steps.append(chunk(tool_calls=[{"index": 0, "function": {"arguments": piece}}]))
    told = drafts(0.8, random.Random(1))
    return Sse([*steps, chunk(finish="tool_calls"), chunk(usage=(3, 9), extra=told), DONE])


async def test_stalls_inside_tool_arguments(
    upstream: Upstream, second: Upstream, gateway: StartGateway, database: Database
) -> None:
    upstream.script(Reply(b"", separate=False), path="/health", times=None)
    gw = await gateway(speculating(upstream, second, stall=0.3), database=database)
    for _ in range(20):
        upstream.script(tool_call())
        assert (await gw.chat(stream=True, tools=TOOLS)).status == 200
    assert found(gw) == []
    upstream.script(tool_call(0, 0.4), times=None)
    assert await calls_until_found(gw, 20, stream=True, tools=TOOLS) <= 12
    assert (found(gw)[0]["kind"], found(gw)[0]["what"]) == ("tool", "stalls")
    await until_moved(gw, "tool")
    assert (await gw.chat(stream=True, tools=TOOLS)).header("x-turnout-model") == "m1"


@pytest.mark.parametrize("fault", ["invalid", "refused"])
async def test_grammars_that_fail(
    upstream: Upstream,
    second: Upstream,
    gateway: StartGateway,
    database: Database,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer that is no JSON, or vLLM's own error in its place; plain answers with errors say nothing."""
    monkeypatch.setattr("gateway.alarm.alarms.DOUBT_SECONDS", 0.0)
    upstream.script(Reply(b"", separate=False), path="/health", times=None)
    gw = await gateway(speculating(upstream, second), database=database)
    for _ in range(20):
        upstream.script(Reply(completion("{}")))
        await gw.chat(**JSON_MODE)
    bad = Reply(completion("{")) if fault == "invalid" else error(500, "Internal server error")
    upstream.script(bad, path="/completions", times=None)
    for _ in range(3):
        await gw.chat()
    assert found(gw) == []
    for _ in range(12):
        await gw.chat(**JSON_MODE)
        await asyncio.sleep(0.01)
    await until(lambda: found(gw))
    assert (found(gw)[0]["kind"], found(gw)[0]["what"]) == ("json", "rejections")


async def test_an_engine_that_has_ended_breaks_no_grammar(
    second: Upstream, gateway: StartGateway, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its calls fail at once, with vLLM's error; a moment later it is known to be down."""
    monkeypatch.setattr("gateway.alarm.alarms.DOUBT_SECONDS", 1.0)
    async with Upstream() as engine:
        engine.script(Reply(b"", separate=False), path="/health", times=None)
        gw = await gateway(speculating(engine, second), database=database, look_seconds=0.02)
        engine.script(error(500, "Internal server error"), path="/completions", times=None)
        calls = [asyncio.create_task(gw.chat(**JSON_MODE)) for _ in range(40)]
        await asyncio.gather(*calls)
        engine.scripts.clear()
        engine.script(Reply(b"", 503, separate=False), path="/health", times=None)
        await asyncio.sleep(1.5)
        assert found(gw) == []


def kept_calls(file: Path) -> int:
    """Of the baseline that the database holds."""
    database = sqlite3.connect(file)
    row = database.execute("SELECT value FROM baselines").fetchone()
    database.close()
    return int(json.loads(row[0])["calls"]) if row is not None else 0


async def test_baselines_outlive_the_process(
    upstream: Upstream, second: Upstream, gateway: StartGateway, tmp_path: Path
) -> None:
    engine = Engine(upstream, rate=0.8)
    config = speculating(upstream, second)
    async with LocalGateway(config, database=Database("sqlite:///t.db", tmp_path)) as first:
        for _ in range(210):
            await first.chat()
        learned = (await state(first))["speculation"][0]["kinds"][0]["baseline"]
        assert learned["final"]
        await until(lambda: kept_calls(tmp_path / "t.db") == 200)
    engine.rate = 0.3
    async with LocalGateway(config, database=Database("sqlite:///t.db", tmp_path)) as later:
        async with asyncio.timeout(LIMIT):
            while not (await state(later))["speculation"][0]["kinds"]:  # noqa: ASYNC110 - see `until`
                await asyncio.sleep(0.01)
        assert await calls_until_found(later, 100) <= 80
        (kind,) = (await state(later))["speculation"][0]["kinds"]
        assert kind["baseline"] == learned
