"""The flow with stages and an exchange that only take notes: no HTTP, no sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.body import NO_BODY, Body
from gateway.call import ENDPOINTS, Call, Caller, Plan
from gateway.config.runtime import GatewaySettings, Runtime
from gateway.errors import ERRORS, GatewayError
from gateway.flow import LARGE, Flow, Stages
from tests.unit.building import a_runtime

ORDER = [
    "watch",
    "identify",
    "read",
    "parse",
    "recall",
    "plan",
    "admit",
    "attempt",
    "start",
    "account",
    "settle",
    "finish",
    "end",
    "close",
]
STAGES = ["identify", "read", "parse", "recall", "plan", "admit", "attempt", "start", "end"]
"""Where something can go wrong; `read`, `start` and `end` belong to the exchange."""
AWAITS = ["read", "recall", "admit", "attempt", "start", "end"]
REFUSAL = GatewayError("rate_limit_exceeded", "too many")


class Rig:
    """Everything around one flow, and the notes of what happened, in order.

    `at`: what happens at a step instead of its work: an exception is raised, a coroutine function is awaited.
    """

    def __init__(self, **at: Any) -> None:
        self.at = at
        self.notes: list[str] = []
        self.reports: list[BaseException] = []
        self.finished: list[tuple[str, int]] = []
        self.errors: list[GatewayError] = []
        self.waiting = asyncio.Event()
        self.call: Call | None = None
        self.stages = self.make_stages(a_runtime(gateway=GatewaySettings(max_body_bytes=77)))
        self.flow = Flow(self.stages)
        self.exchange = Exchange(self)

    def note(self, name: str) -> None:
        self.notes.append(name)
        if isinstance(self.at.get(name), BaseException):
            raise self.at[name]

    async def step(self, name: str) -> None:
        self.note(name)
        if name in self.at:
            await self.at[name]()

    async def hang(self) -> None:
        self.waiting.set()
        await asyncio.get_running_loop().create_future()

    def make_stages(self, runtime: Runtime, prefix: str = "") -> Stages:
        def sync(name: str, result: Any) -> Callable[..., Any]:
            def stage(*_: Any) -> Any:
                self.note(prefix + name)
                return result

            return stage

        async def admit(call: Call) -> Any:
            await self.step(prefix + "admit")
            return self

        async def recall(call: Call) -> None:
            await self.step(prefix + "recall")

        async def attempt(call: Call, plan: Plan) -> Any:
            await self.step(prefix + "attempt")
            return self

        async def deliver(call: Call, answer: Any, exchange: Any, close: Callable[[], None]) -> None:
            assert answer is self
            await exchange.start(call, b"text/plain", 2)
            call.outcome = "ok"
            close()
            await exchange.end(b"ok")

        return Stages(
            runtime=runtime,
            identify=sync("identify", Caller("me")),
            parse=sync("parse", NO_BODY),
            recall=recall,
            admit=admit,
            plan=sync("plan", Plan("auto", "default", ())),
            attempt=attempt,
            deliver=deliver,
            account=lambda call: self.note("account"),
            finish=self.finish,
            report=lambda call, fault: self.reports.append(fault),
        )

    def finish(self, call: Call) -> None:
        self.note("finish")
        self.finished.append((call.outcome, call.status))

    def settle(self, call: Call) -> None:
        """The rig is the lease, too."""
        self.note("settle")

    def close(self) -> None:
        """And the answer."""
        self.note("close")

    async def run(self) -> None:
        await self.flow.run(self.exchange)

    def happened(self, name: str) -> int:
        return self.notes.count(name)


class Exchange:
    """See `call.Exchange`."""

    endpoint = ENDPOINTS["chat"]
    request_id = "req_1"
    peer = "127.0.0.1"
    raw = b"{}"

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.headers = {b"x": b"y"}
        self.left = False

    async def read(self, limit: int) -> bytes:
        assert limit == 77
        await self._rig.step("read")
        return self.raw

    def watch(self, call: Call) -> None:
        self._rig.call = call
        self._rig.note("watch")

    async def start(self, call: Call, content_type: bytes, length: int | None) -> None:
        call.status = 200
        await self._rig.step("start")

    async def write(self, data: bytes) -> None:
        await self._rig.step("write")

    def pass_on(self, data: bytes) -> bool:
        raise AssertionError("the rig's answers take no short cut")

    async def end(self, data: bytes = b"") -> None:
        await self._rig.step("end")

    async def fail(self, call: Call, error: GatewayError) -> None:
        self._rig.errors.append(error)
        await self._rig.step("fail")

    def release(self) -> None:
        self._rig.note("release")


def booked_once(rig: Rig) -> bool:
    """Counted and let go of once; settled where something was reserved, and the answer closed where there was one."""
    admitted = "attempt" in rig.notes
    answered = "start" in rig.notes
    counts = [rig.happened(name) for name in ("finish", "release", "settle", "close")]
    return counts == [1, 1, int(admitted), int(answered)]


async def test_the_stages_in_their_order() -> None:
    rig = Rig()
    await rig.run()
    assert rig.notes == [*ORDER, "release"]
    assert rig.finished == [("ok", 200)]
    assert rig.errors == rig.reports == []
    assert rig.call is not None
    assert (rig.call.id, rig.call.caller.key, rig.call.body) == ("req_1", "me", NO_BODY)
    assert rig.call.headers == {b"x": b"y"}
    assert rig.call.runtime is rig.stages.runtime


@pytest.mark.parametrize("stage", STAGES)
async def test_a_refusal_in_any_stage(stage: str) -> None:
    rig = Rig(**{stage: REFUSAL})
    await rig.run()
    assert rig.errors == [REFUSAL]
    assert rig.reports == []
    assert booked_once(rig)
    if stage in ("start", "end"):
        assert rig.finished == [("rate_limit_exceeded", 200) if stage == "start" else ("ok", 200)]
    else:
        assert rig.notes == [*ORDER[: ORDER.index(stage) + 1], *_books(rig), "fail", "release"]
        assert rig.finished == [("rate_limit_exceeded", 429)]


def _books(rig: Rig) -> list[str]:
    return [name for name in rig.notes if name in ("account", "settle", "finish")]


@pytest.mark.parametrize("stage", STAGES)
async def test_a_fault_in_any_stage(stage: str) -> None:
    fault = KeyError("sk-secret")
    rig = Rig(**{stage: fault})
    await rig.run()
    assert rig.reports == [fault]
    (error,) = rig.errors
    assert (error.code, error.status) == ("internal_error", 500)
    assert "secret" not in error.message
    assert booked_once(rig)


@pytest.mark.parametrize("stage", AWAITS)
async def test_the_caller_leaves_at_any_moment(stage: str) -> None:
    rig = Rig()
    rig.at[stage] = rig.hang
    running = asyncio.create_task(rig.run())
    await rig.waiting.wait()
    rig.exchange.left = True
    running.cancel()
    await running
    assert booked_once(rig)
    assert rig.errors == rig.reports == []
    assert rig.finished == [("ok", 200) if stage == "end" else ("client_closed", 499)]


@pytest.mark.parametrize("stage", AWAITS)
async def test_the_server_stops_at_any_moment(stage: str) -> None:
    rig = Rig()
    rig.at[stage] = rig.hang
    running = asyncio.create_task(rig.run())
    await rig.waiting.wait()
    running.cancel()
    await asyncio.wait([running])
    assert booked_once(rig)
    assert [error.code for error in rig.errors] == ["shutting_down"]
    assert rig.errors[0].status == ERRORS["shutting_down"].status
    assert rig.finished[0][0] == ("ok" if stage == "end" else "shutting_down")


async def test_the_caller_leaves_while_it_is_told_of_an_error() -> None:
    rig = Rig(plan=REFUSAL)
    rig.at["fail"] = rig.hang
    running = asyncio.create_task(rig.run())
    await rig.waiting.wait()
    rig.exchange.left = True
    running.cancel()
    await running
    assert booked_once(rig)
    assert rig.finished == [("rate_limit_exceeded", 429)]


@pytest.mark.parametrize("book", ["account", "settle", "finish"])
async def test_a_book_that_fails_costs_neither_the_answer_nor_the_others(book: str) -> None:
    rig = Rig(**{book: ValueError("the ledger is gone")})
    await rig.run()
    assert [type(fault) for fault in rig.reports] == [ValueError]
    assert rig.errors == []
    assert rig.notes[-3:] == ["end", "close", "release"]
    assert [rig.happened(one) for one in ("account", "settle", "finish")] == [1, 1, 1]


async def test_an_answer_that_breaks_off_is_an_error_of_the_call() -> None:
    broken = GatewayError("upstream_bad_response", "the answer broke off")
    rig = Rig(start=broken)
    await rig.run()
    assert rig.call is not None
    assert (rig.call.error, rig.call.outcome, rig.call.status) == (broken, "upstream_bad_response", 200)
    assert booked_once(rig)


async def test_a_call_keeps_the_stages_it_started_with() -> None:
    rig = Rig()

    async def reload() -> None:
        rig.flow.stages = rig.make_stages(replace(rig.stages.runtime, digest="new"), "new ")

    rig.at["read"] = reload
    await rig.run()
    assert rig.notes == [*ORDER, "release"]
    assert rig.call is not None
    assert rig.call.runtime is rig.stages.runtime
    rig.notes.clear()
    del rig.at["read"]
    await rig.run()
    assert [note for note in rig.notes if note.startswith("new ")] == [
        f"new {stage}" for stage in ("identify", "parse", "recall", "plan", "admit", "attempt")
    ]
    assert rig.call.runtime.digest == "new"


async def test_calls_side_by_side_know_nothing_of_each_other() -> None:
    rig = Rig()
    one, other = Exchange(rig), Exchange(rig)
    seen: list[Call] = []

    async def meet() -> None:
        assert rig.call is not None
        seen.append(rig.call)
        await asyncio.sleep(0)

    rig.at["read"] = meet
    await asyncio.gather(rig.flow.run(one), rig.flow.run(other))
    assert len({id(call) for call in seen}) == 2
    assert rig.finished == [("ok", 200)] * 2


async def test_a_large_body_does_not_stop_the_others() -> None:
    rig, loop, turned = Rig(), asyncio.get_running_loop(), threading.Event()

    def parse(raw: bytes, endpoint: object) -> Body:
        loop.call_soon_threadsafe(turned.set)
        assert turned.wait(10), "the loop stands still meanwhile"
        return NO_BODY

    rig.flow.stages = replace(rig.stages, parse=parse)
    rig.exchange.raw = b" " * LARGE
    await rig.run()
    assert (rig.finished, rig.reports) == ([("ok", 200)], [])
