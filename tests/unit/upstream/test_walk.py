"""The walk through a plan, with clients that only pretend: what follows what, and what the caller is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway import clock
from gateway.call import Attempt, Call, Plan
from gateway.config.runtime import GatewaySettings, Model, Timeouts
from gateway.errors import CAUSES, GatewayError, UpstreamFailure
from gateway.upstream.walk import Door, Walker
from tests.unit.building import a_call, a_model, a_runtime, an_upstream

SECRETS = ("sk-up", "127.0.0.1", "10.1.2.3")
STREAM = b'{"model":"auto","stream":true,"messages":[]}'


class Incoming:
    """An answer whose body is there."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        self.status = status
        self.headers: Mapping[bytes, bytes] = {b"retry-after": b"7"}
        self.closed: list[bool] = []
        self._body = body

    async def read(self, deadline: float) -> bytes:
        body, self._body = self._body, b""
        return body

    def close(self, almost_over: bool = False) -> None:
        self.closed.append(almost_over)


Outcome = Exception | Incoming | Callable[[], Any]


class Client:
    """Does what it is told; takes notes."""

    def __init__(self, *outcomes: Outcome, busy: int = 0) -> None:
        self.busy = busy
        self.bodies: list[bytes] = []
        self.deadlines: list[float] = []
        self._outcomes = list(outcomes)

    async def send(self, request: bytes, body: bytes, connect: float, deadline: float) -> Incoming:
        self.bodies.append(body)
        self.deadlines.append(deadline)
        outcome = self._outcomes.pop(0) if self._outcomes else Incoming(200)
        if callable(outcome):
            outcome = await outcome()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Held:
    """A committed answer."""

    def __init__(self, model: str) -> None:
        self.model = model


async def hold(call: Call, attempt: Attempt, response: Any, first_event: float) -> Any:
    return Held(attempt.model.name)


class Rig:
    """Models `m0`, `m1`, ... one per client (or tuple of clients: replicas), each at an upstream of its own."""

    def __init__(self, *clients: Client | tuple[Client, ...], contexts: tuple[int | None, ...] = (), **gateway: Any):
        doors = {}
        models: list[Model] = []
        for number, group in enumerate(clients):
            upstream = an_upstream(f"u{number}")
            context = contexts[number] if contexts else None
            models.append(a_model(f"m{number}", upstream, context=context))
            replicas = group if isinstance(group, tuple) else (group,)
            doors[upstream.name] = tuple(Door(client, {"chat": b"POST / HTTP/1.1\r\n"}) for client in replicas)
        self.plan = Plan("auto", "default", tuple(Attempt(model, "because") for model in models))
        self.runtime = a_runtime(*models, gateway=GatewaySettings(**gateway))
        self._walker = Walker(doors, lambda attempt: f"id-of-{attempt.model.name}")
        self.call = a_call(runtime=self.runtime, arrived=clock.now())

    async def open(self, hold: Any = hold) -> Any:
        self.call.plan = self.plan
        return await self._walker.open(self.call, self.plan, hold)

    async def refused(self, hold: Any = hold) -> GatewayError:
        with pytest.raises(GatewayError) as caught:
            await self.open(hold)
        assert not any(secret in caught.value.message for secret in SECRETS)
        return caught.value

    @property
    def tried(self) -> list[tuple[str, str]]:
        return [(t.model, t.cause) for t in self.call.tried]


def failing(cause: str) -> Client:
    return Client(UpstreamFailure(cause, f"it was {cause}", status=418))


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
    rig = Rig(failing("connect"), failing(cause), contexts=(1000, 1000))
    error = await rig.refused()
    assert (error.code, error.retry_after) == (CAUSES[cause].code, None)
    assert error.message == f"route auto: m0 via u0: it was connect; then m1 via u1: it was {cause}"
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
    rig = Rig((failing(cause), other))
    await rig.refused()
    assert other.bodies == []


async def test_an_upstream_without_an_address() -> None:
    assert (await Rig(()).refused()).code == "upstream_unavailable"


# -- refusals and broken answers


async def test_a_refusal_is_read_and_its_connection_kept() -> None:
    refusal = Incoming(429, b'{"error":{"message":"slow down","type":"x","code":"rate_limit_exceeded"}}')
    rig = Rig(Client(refusal))
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

    assert (await Rig(Client(Cut(503))).refused()).code == "upstream_overloaded"


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

    rig = Rig(Client())
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
    rig.plan = replace(rig.plan, route="m0")
    assert (await rig.refused()).message == "m0 via u0: it was connect"
