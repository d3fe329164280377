"""C40: who fails by its own fault is left alone for a while, nobody else is, and one call at a time finds out more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.config import load
from tests.conftest import StartGateway
from tests.fakes import (
    Exchange,
    Hang,
    Reply,
    Reset,
    Sse,
    Step,
    Upstream,
    WaitFor,
    answer,
    chunk,
    completion,
    error,
    event,
    refusing_port,
)
from tests.harness import LocalGateway, config_for
from tests.wire.calls import LIMIT, STREAM, ask, errors_of

FAILURES = 5
SOON = {"breaker": {"failures": FAILURES, "open_seconds": 0.2}}


async def state(gw: LocalGateway, model: str = "m0") -> float:
    """0 closed, 1 half-open, 2 open."""
    return (await gw.metrics()).total("turnout_breaker_state", model=model)


async def first_choice(gw: LocalGateway) -> dict[str, Any]:
    """The attempt that a call would begin with."""
    told = (await gw.fetch("/v1/route", {"model": "auto", "messages": [{"role": "user", "content": "x"}]})).json()
    attempt: dict[str, Any] = told["attempts"][0]
    return attempt


FAULTS: dict[str, Step] = {"500": error(500), "reset": Reset(), "page": Reply(b"<html>"), "401": error(401)}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_c40_an_upstream_that_fails_leaves_rotation(
    upstream: Upstream, second: Upstream, gateway: StartGateway, fault: Step
) -> None:
    upstream.script(fault, times=None)
    gw = await gateway(config_for(upstream, second))
    for number in range(25):
        answered = await gw.chat(**(STREAM if number % 2 else {}))
        assert (answered.status, answered.header("x-turnout-upstream")) == (200, "u1")
    assert upstream.count() == FAILURES
    assert (await state(gw), await state(gw, "m1")) == (2, 0)
    assert (await first_choice(gw))["model"] == "m1"


async def test_c40_a_dead_host_is_left_alone(second: Upstream, gateway: StartGateway) -> None:
    with refusing_port() as port:
        gw = await gateway(config_for(Upstream(port=port), second))
        answers = [await gw.chat() for _ in range(100)]
    assert {answer.header("x-turnout-upstream") for answer in answers} == {"u1"}
    assert [answer.header("x-turnout-attempts") for answer in answers] == ["2"] * FAILURES + ["1"] * (100 - FAILURES)
    assert (await gw.metrics()).total("turnout_attempts_total", upstream="u0", result="connect") == FAILURES


async def test_c40_callers_who_err_or_leave_say_nothing_against_it(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    upstream.script(error(400), times=20)
    for _ in range(20):
        assert (await gw.chat()).status == 400
    upstream.script(Hang(), times=20)
    for number in range(20):
        async with asyncio.timeout(LIMIT), gw.connect() as client:
            await client.send(ask())
            await upstream.call(20 + number)
            client.reset()
            await upstream.until_open(0)
    assert await state(gw) == 0
    assert (await gw.chat()).status == 200


async def test_c40_the_only_upstream_is_asked_all_the_same(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(500), times=FAILURES)
    gw = await gateway(upstream)
    for _ in range(FAILURES):
        assert (await gw.chat()).status == 502
    assert await state(gw) == 2
    assert (await gw.chat()).status == 200
    assert await state(gw) == 0


async def test_c40_the_least_bad_is_tried_when_all_are_out(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    for up in (upstream, second):
        up.script(error(500), times=None)
    gw = await gateway(config_for(upstream, second))
    for _ in range(FAILURES):
        assert (await gw.chat()).status == 502
    before = upstream.count() + second.count()
    assert (await gw.chat()).header("x-turnout-attempts") == "1"
    assert upstream.count() + second.count() == before + 1


async def test_c40_one_call_probes_and_a_good_answer_ends_it(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    gate = asyncio.Event()
    upstream.script(error(500), times=FAILURES)
    upstream.script(WaitFor(gate), Reply(completion("back")))
    gw = await gateway(config_for(upstream, second, gateway=SOON))
    for _ in range(FAILURES):
        await gw.chat()
    async with asyncio.timeout(LIMIT):
        while await state(gw) != 1:
            pass
        probe = asyncio.create_task(gw.chat())
        await upstream.call(FAILURES)
        others = await asyncio.gather(*(gw.chat() for _ in range(10)))
        assert {other.header("x-turnout-upstream") for other in others} == {"u1"}
        gate.set()
        assert (await probe).header("x-turnout-upstream") == "u0"
    assert await state(gw) == 0
    assert (await gw.chat()).header("x-turnout-upstream") == "u0"
    assert upstream.count() == FAILURES + 2


async def test_c40_a_failed_probe_costs_its_caller_nothing(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    upstream.script(error(500), times=None)
    gw = await gateway(config_for(upstream, second, gateway=SOON))
    for _ in range(FAILURES):
        await gw.chat()
    async with asyncio.timeout(LIMIT):
        while await state(gw) != 1:
            pass
    assert (await gw.chat()).header("x-turnout-upstream") == "u1"
    assert upstream.count() == FAILURES + 1
    assert await state(gw) == 2


async def test_c40_each_model_of_an_upstream_for_itself(upstream: Upstream, gateway: StartGateway) -> None:
    async def by_model(exchange: Exchange) -> None:
        bad = exchange.request.json()["model"] == "bad"
        await (error(500) if bad else Reply(completion("fine")))(exchange)

    upstream.script(by_model, times=None)
    gw = await gateway(
        config_for(
            upstream,
            upstream,
            upstreams={"u1": None},
            models={"m0": {"model": "bad"}, "m1": {"upstream": "u0", "model": "good"}},
        )
        | {"upstreams": {"u0": {"base_url": upstream.url, "api_key": "sk-upstream-0"}}}
    )
    for _ in range(FAILURES + 1):
        assert (await gw.chat()).header("x-turnout-model") == "m1"
    assert (await state(gw), await state(gw, "m1")) == (2, 0)


@pytest.mark.seconds
async def test_c40_an_upstream_that_hangs_blocks_nobody_else(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    upstream.script(Hang(), times=None)
    gw = await gateway(config_for(upstream, second))
    async with asyncio.timeout(2 * LIMIT):
        stuck = [asyncio.create_task(gw.chat(model="m0", **STREAM)) for _ in range(20)]
        await upstream.call(19)
        answers = await asyncio.gather(*(gw.chat(model="m1") for _ in range(200)))
        assert [answer.status for answer in answers] == [200] * 200
        assert not any(task.done() for task in stuck)
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
        await upstream.until_open(0)


async def test_c40_a_reload_forgets_nothing(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(500), times=None)
    gw = await gateway(config_for(upstream, second))
    for _ in range(FAILURES):
        await gw.chat()
    gw.write_config(config_for(upstream, second, gateway={"max_body_mb": 1}))
    gw.app.gateway.apply(load(gw.file, gw.env))
    assert (await gw.chat()).header("x-turnout-attempts") == "1"
    choice = await first_choice(gw)
    assert (choice["model"], await state(gw)) == ("m1", 2)


async def test_c40_the_plan_tells_why(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    upstream.script(error(500), times=None)
    gw = await gateway(config_for(upstream, second))
    for _ in range(FAILURES):
        await gw.chat()
    told = (await gw.fetch("/v1/route", {"model": "auto", "messages": [{"role": "user", "content": "x"}]})).json()
    assert [attempt["model"] for attempt in told["attempts"]] == ["m1", "m0"]
    assert "its breaker is open for" in told["attempts"][1]["reason"]


BREAKS: dict[str, Step] = {
    "cut": Sse([chunk("Hi"), Reset()]),
    "end": Sse([chunk("Hi")], framing="close"),
    "idle": Sse([chunk("Hi"), Hang()]),
    "an error": Sse([chunk("Hi"), event({"error": {"message": "out of memory", "code": 500}})]),
}
IMPATIENT = {"timeouts": {"idle": 0.1}}


@pytest.mark.parametrize("step", BREAKS.values(), ids=BREAKS)
@pytest.mark.seconds
async def test_c40_answers_that_break_off_count(
    upstream: Upstream, second: Upstream, gateway: StartGateway, step: Step
) -> None:
    upstream.script(step, times=FAILURES)
    gw = await gateway(config_for(upstream, second, gateway=IMPATIENT))
    for _ in range(FAILURES):
        answered = await gw.chat(**STREAM)
        assert (answered.status, answered.header("x-turnout-upstream")) == (200, "u0")
        assert errors_of(answered.body)
    assert (await gw.chat(**STREAM)).header("x-turnout-upstream") == "u1"
    assert (await state(gw), await state(gw, "m1")) == (2, 0)


@pytest.mark.parametrize(("step", "after"), [(error(400), 2), (Sse(answer("fine")), 0)], ids=["refusal", "whole"])
async def test_c40_only_a_whole_answer_ends_the_row(
    upstream: Upstream, gateway: StartGateway, step: Step, after: int
) -> None:
    gw = await gateway(config_for(upstream, gateway=IMPATIENT))
    for each in [BREAKS["cut"]] * (FAILURES - 1) + [step, BREAKS["cut"]]:
        upstream.script(each)
        await gw.chat(**STREAM)
    assert await state(gw) == after


async def test_c40_callers_who_leave_a_stream_say_nothing_against_it(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    upstream.script(BREAKS["idle"], times=2 * FAILURES)
    for _ in range(2 * FAILURES):
        async with gw.connect() as client, asyncio.timeout(LIMIT):
            await client.send(ask())
            await anext((await client.response()).pieces())
    await upstream.until_open(0)
    assert await state(gw) == 0


async def test_c40_an_answer_longer_than_its_total_time_says_nothing_against_it(
    upstream: Upstream, gateway: StartGateway
) -> None:
    upstream.script(Sse([chunk("a")] * 100, gap=0.05), times=FAILURES)
    gw = await gateway(config_for(upstream, gateway={"timeouts": {"total": 0.2}}))
    answers = await asyncio.gather(*(gw.chat(**STREAM) for _ in range(FAILURES)))
    assert all(errors_of(answered.body) for answered in answers)
    assert await state(gw) == 0
