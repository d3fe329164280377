"""The walk through a plan, with clients that only pretend: what follows what, and what the caller is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway import clock
from gateway.call import Attempt, Call
from gateway.config.runtime import Timeouts
from gateway.errors import CAUSES, GatewayError, UpstreamFailure
from gateway.upstream.health import Seen
from gateway.upstream.retry import RESERVE, SHARE
from gateway.upstream.walk import BACK_SOON
from tests.unit.building import a_call
from tests.unit.upstream.walking import Client, Held, Incoming, Rig, failing

STREAM = b'{"model":"auto","stream":true,"messages":[]}'


async def test_the_first_that_answers() -> None:
    first, second = Client(), Client()
    rig = Rig(first, second)
    assert (await rig.open()).model == "m0"
    assert rig.tried == [("m0", "")]
    assert rig.call.answered is rig.plan.attempts[0]
    assert first.bodies == [b'{"model":"id-of-m0","messages":[]}']
    assert second.bodies == []


@pytest.mark.parametrize("cause", CAUSES)
async def test_what_follows_a_cause(cause: str) -> None:
    """Yes: the next one. Larger: the next one with more room. No: nobody."""
    rig = Rig(failing(cause), Client(), Client(), contexts=(1000, 1000, 2000))
    if CAUSES[cause].next == "no":
        error = await rig.refused()
        assert error.code == CAUSES[cause].code
        assert rig.tried == [("m0", cause)]
    else:
        follower = {"yes": "m1", "larger": "m2"}[CAUSES[cause].next]
        assert (await rig.open()).model == follower
        assert rig.tried == [("m0", cause), (follower, "")]


@pytest.mark.parametrize("cause", CAUSES)
async def test_what_the_caller_is_told_in_the_end(cause: str) -> None:
    rig = Rig(failing("server_error"), failing(cause), contexts=(1000, 1000))
    error = await rig.refused()
    assert (error.code, error.retry_after) == (CAUSES[cause].code, None)
    assert error.message == f"route auto: m0 via u0: it was server_error; then m1 via u1: it was {cause}"
    assert error.status == (418 if CAUSES[cause].shown else GatewayError(CAUSES[cause].code, "").status)


OVERFLOW = "context_overflow"


@pytest.mark.parametrize(
    ("causes", "contexts", "tried"),
    [
        ((OVERFLOW, OVERFLOW), (8, 32), [0, 1]),
        ((OVERFLOW, "", ""), (100, 8, 32), [0]),
        ((OVERFLOW, "", ""), (100, None, 32), [0]),
        ((OVERFLOW, "", ""), (100, 8, 200), [0, 2]),
        ((OVERFLOW, "connect", "", ""), (8, 32, 8, 16), [0, 1, 3]),
        ((OVERFLOW, OVERFLOW, "", ""), (8, 32, 16, 64), [0, 1, 3]),
        ((OVERFLOW, ""), (None, 8), [0, 1]),
        ((OVERFLOW, ""), (None, None), [0]),
        ((OVERFLOW, ""), (8, None), [0]),
    ],
)
async def test_after_an_overflow_only_more_room_helps(
    causes: tuple[str, ...], contexts: tuple[int | None, ...], tried: list[int]
) -> None:
    rig = Rig(*(failing(cause) if cause else Client() for cause in causes), contexts=contexts)
    if causes[tried[-1]]:
        await rig.refused()
    else:
        await rig.open()
    assert [name for name, _ in rig.tried] == [f"m{number}" for number in tried]


async def test_no_more_attempts_than_allowed() -> None:
    clients = [failing("server_error") for _ in range(5)]
    rig = Rig(*clients, attempts=3)
    await rig.refused()
    assert [len(client.bodies) for client in clients] == [1, 1, 1, 0, 0]


async def test_nothing_is_tried_after_the_deadline() -> None:
    async def late() -> Exception:
        rig.call.arrived -= 1000
        return UpstreamFailure("timeout", "no answer in time")

    rig = Rig(Client(late), Client())
    assert (await rig.refused()).code == "upstream_timeout"
    assert rig.tried == [("m0", "timeout")]


async def test_deadlines() -> None:
    """A plain answer has until the end of the call; each stream has its time for the first event anew."""
    plain = Client()
    rig = Rig(plain, timeouts=Timeouts(first_event=5, total=60))
    await rig.open()
    assert plain.deadlines == [rig.call.deadline]
    first, second = failing("timeout"), Client()
    rig = Rig(first, second, timeouts=Timeouts(first_event=5, total=60))
    rig.call.body = a_call(STREAM).body
    started = clock.now()
    await rig.open()
    assert all(started + 5 <= d < rig.call.deadline for d in first.deadlines + second.deadlines)
    assert first.deadlines[0] <= second.deadlines[0]
    rig = Rig(client := Client(), timeouts=Timeouts(first_event=100, total=60))
    rig.call.body = a_call(STREAM).body
    await rig.open()
    assert client.deadlines == [rig.call.deadline]


# -- replicas


async def test_the_least_busy_replica_is_asked() -> None:
    busy, free = Client(busy=3), Client(busy=1)
    rig = Rig((busy, free))
    await rig.open()
    assert (len(busy.bodies), len(free.bodies)) == (0, 1)


async def test_a_refused_connection_goes_to_the_next_replica() -> None:
    dead, alive = failing("connect"), Client(busy=9)
    rig = Rig((dead, alive))
    assert (await rig.open()).model == "m0"
    assert (len(dead.bodies), len(alive.bodies)) == (1, 1)
    assert rig.tried == [("m0", "")]


async def test_all_replicas_refuse() -> None:
    rig = Rig((failing("connect"), failing("connect")), Client())
    assert (await rig.open()).model == "m1"
    assert rig.tried == [("m0", "connect"), ("m1", "")]


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause != "connect"])
async def test_nothing_else_is_sent_to_another_replica(cause: str) -> None:
    """It may have been taken by the first."""
    other = Client(busy=9)
    rig = Rig((failing(cause), other), attempts=1)
    await rig.refused()
    assert other.bodies == []


async def test_an_upstream_without_an_address() -> None:
    assert (await Rig(()).refused()).code == "upstream_unavailable"


# -- refusals and broken answers


async def test_a_refusal_is_read_and_its_connection_kept() -> None:
    refusal = Incoming(429, b'{"error":{"message":"slow down","type":"x","code":"rate_limit_exceeded"}}')
    rig = Rig(Client(refusal), attempts=1)
    error = await rig.refused()
    assert (error.code, error.status, error.retry_after) == ("upstream_rate_limited", 429, 7.0)
    assert error.body is not None
    assert refusal.closed == [True]
    assert rig.call.tried[0].status == 429


async def test_an_endless_refusal_is_cut_short() -> None:
    class Endless(Incoming):
        reads = 0

        async def read(self, deadline: float) -> bytes:
            self.reads += 1
            return b"x" * 10_000

    endless = Endless(500)
    await Rig(Client(endless)).refused()
    assert endless.reads < 10
    assert endless.closed


async def test_a_refusal_whose_body_does_not_come() -> None:
    class Cut(Incoming):
        async def read(self, deadline: float) -> bytes:
            raise UpstreamFailure("cut", "the connection broke")

    assert (await Rig(Client(Cut(503)), attempts=1).refused()).code == "upstream_overloaded"


@pytest.mark.parametrize("fault", [UpstreamFailure("bad_response", "no choices"), KeyError("ours"), None])
async def test_an_answer_that_does_not_commit_is_closed(fault: Exception | None) -> None:
    incoming, reached = Incoming(200), asyncio.Event()

    async def broken(*_: Any) -> Any:
        reached.set()
        if fault is None:
            await asyncio.get_running_loop().create_future()
        raise fault or AssertionError

    rig = Rig(Client(incoming), Client())
    opening = asyncio.create_task(rig.open(broken))
    await reached.wait()
    if fault is None:
        opening.cancel()
    await asyncio.wait([opening])
    assert incoming.closed == [False]
    assert len(rig.call.tried) == (2 if isinstance(fault, UpstreamFailure) else 1)


async def test_an_error_inside_an_answer_is_classified() -> None:
    said = b'{"error":{"message":"no","type":"x","code":429}}'

    async def embedded(*_: Any) -> Any:
        raise UpstreamFailure("embedded", "an error", body=said)

    rig = Rig(Client(), attempts=1)
    error = await rig.refused(embedded)
    assert (error.code, error.status) == ("upstream_rate_limited", 429)


async def test_waiting_is_not_the_gateways_own_time() -> None:
    async def slow() -> Incoming:
        await asyncio.sleep(0.02)
        return Incoming(200)

    rig = Rig(Client(slow))
    await rig.open()
    assert 0.02 <= rig.call.waited <= clock.now() - rig.call.arrived


async def test_usage_of_a_failed_attempt_is_forgotten() -> None:
    async def spending(call: Call, attempt: Attempt, *_: Any) -> Any:
        if attempt.model.name == "m0":
            call.usage = replace(call.usage, prompt=99)
            raise UpstreamFailure("cut", "the connection broke")
        return Held(attempt.model.name)

    rig = Rig(Client(), Client())
    await rig.open(spending)
    assert rig.call.usage.prompt == 0


async def test_a_model_named_by_the_client_is_named_once() -> None:
    rig = Rig(failing("connect"))
    rig.plan = msgspec.structs.replace(rig.plan, route="m0")
    assert (await rig.refused()).message == "m0 via u0: it was connect"


# -- resting models


async def test_a_resting_model_comes_after_the_others() -> None:
    rig = Rig(failing("server_error"), Client(), breaker_failures=1)
    await rig.open()
    rig.call.tried.clear()
    await rig.open()
    assert rig.tried == [("m1", "")]


async def test_a_resting_model_is_tried_when_all_others_have_failed() -> None:
    back = Client(UpstreamFailure("server_error", "HTTP 500", status=500))
    rig = Rig(back, Client(Incoming(200), UpstreamFailure("cut", "the connection broke")), breaker_failures=1)
    await rig.open()
    rig.call.tried.clear()
    assert (await rig.open()).model == "m0"
    assert rig.tried == [("m1", "cut"), ("m0", "")]
    assert rig.breakers.states() == {("u0", "m0"): 0, ("u1", "m1"): 2}


async def test_of_the_resting_only_the_soonest_back_is_tried() -> None:
    clients = [failing("server_error") for _ in range(3)]
    rig = Rig(*clients, breaker_failures=1)
    await rig.refused()
    rig.call.tried.clear()
    await rig.refused()
    assert rig.tried == [("m0", "server_error")]


async def test_only_one_call_probes() -> None:
    gate = asyncio.Event()

    async def slow() -> Incoming:
        await gate.wait()
        return Incoming(200)

    first = Client(UpstreamFailure("server_error", "HTTP 500", status=500), slow)
    rig = Rig(first, Client(), breaker_failures=1)
    await rig.open()
    rig.clock += 11
    probing = asyncio.create_task(rig.open())
    await asyncio.sleep(0)
    assert rig.breakers.states()["u0", "m0"] == 1
    assert (await rig.open()).model == "m1"
    gate.set()
    assert (await probing).model == "m0"
    assert rig.breakers.states()["u0", "m0"] == 0


async def test_a_caller_that_leaves_says_nothing_against_a_model() -> None:
    async def hang() -> Any:
        await asyncio.get_running_loop().create_future()

    rig = Rig(Client(*[hang] * 9), breaker_failures=1)
    for _ in range(3):
        opening = asyncio.create_task(rig.open())
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
    assert [cause for _, cause in rig.tried] == ["abandoned"] * 3
    assert rig.breakers.states() == {("u0", "m0"): 0}


# -- engines that are down


LOADING = Seen(0.0, "its engine is not ready (health 503)", down=True)


async def test_an_engine_that_is_down_is_not_asked() -> None:
    first, other = Client(), Client()
    rig = Rig(first, other)
    rig.seen["m0"] = LOADING
    assert (await rig.open()).model == "m1"
    assert (first.bodies, rig.tried) == ([], [("m1", "")])


async def test_with_nobody_else_the_caller_is_told_to_come_back() -> None:
    first, other = Client(), Client()
    rig = Rig(first, other)
    rig.seen["m0"] = rig.seen["m1"] = LOADING
    error = await rig.refused()
    assert (error.code, error.status, error.retry_after) == ("no_healthy_model", 503, BACK_SOON)
    why = "its engine is not ready (health 503)"
    assert error.message == f"route auto: m0 via u0: {why}; m1 via u1: {why}"
    assert (first.bodies, other.bodies, rig.tried) == ([], [], [])


async def test_it_is_named_beside_those_that_failed() -> None:
    rig = Rig(Client(), failing("server_error"))
    rig.seen["m0"] = LOADING
    text = "route auto: m0 via u0: its engine is not ready (health 503); then m1 via u1: it was server_error"
    assert (await rig.refused()).message == text


# -- once more


async def test_what_is_safe_is_repeated_once() -> None:
    client = Client(UpstreamFailure("connect", "Connection refused"))
    rig = Rig(client)
    assert (await rig.open()).model == "m0"
    assert rig.tried == [("m0", "connect"), ("m0", "")]
    client = failing("connect")
    rig = Rig(client, attempts=9)
    assert (await rig.refused()).message == "route auto: m0 via u0: it was connect"
    assert len(client.bodies) == 2


async def test_another_model_comes_before_a_repetition() -> None:
    rig = Rig(failing("rate_limit", retry_after=0.01), failing("server_error"), attempts=9)
    error = await rig.refused()
    assert rig.tried == [("m0", "rate_limit"), ("m1", "server_error"), ("m0", "rate_limit")]
    assert error.message == "route auto: m1 via u1: it was server_error; then m0 via u0: it was rate_limit"
    assert rig.call.waited >= 0.01


async def test_repetitions_count_as_attempts() -> None:
    client = failing("connect")
    await Rig(client, attempts=1).refused()
    assert len(client.bodies) == 1


async def test_an_upstream_in_trouble_is_not_asked_twice_as_often() -> None:
    client = failing("connect", times=300)
    rig = Rig(client, breaker_failures=1000)
    for _ in range(100):
        await rig.refused()
    assert len(client.bodies) - 100 <= RESERVE + SHARE * len(client.bodies)


async def test_leaving_ends_the_wait_for_a_repetition() -> None:
    client = failing("rate_limit", retry_after=15.0)
    rig = Rig(client)
    opening = asyncio.create_task(rig.open())
    while not rig.tried or not rig.tried[0][1]:  # noqa: ASYNC110 - the wait itself has no event
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()
    assert len(client.bodies) == 1


async def test_the_soonest_return_is_told() -> None:
    rig = Rig(failing("rate_limit", retry_after=30.0), failing("rate_limit", retry_after=3600.0))
    assert (await rig.refused()).retry_after == 30.0
