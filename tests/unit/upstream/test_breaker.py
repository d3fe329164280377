"""Breakers by a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.errors import CAUSES, UpstreamFailure
from gateway.upstream.breaker import CLOSED, HALF_OPEN, LONGEST_REST, OPEN, Breaker, Breakers, Limits
from tests.unit.building import a_model, an_upstream


class Rig:
    """One breaker with three failures and ten seconds."""

    def __init__(self, at_once: frozenset[str] = frozenset()) -> None:
        self.now = 1000.0
        self.breaker = Breaker(Limits(3, 10.0), lambda: self.now, at_once)

    async def call(self, failure: str | Exception | None = None, **more: Any) -> None:
        """One call with this end; None: it answers."""

        async def asking() -> str:
            if failure is not None:
                raise UpstreamFailure(failure, "", **more) if isinstance(failure, str) else failure
            return "answer"

        try:
            assert await self.breaker.through(asking()) == "answer"
        except (UpstreamFailure, KeyError):
            assert failure is not None

    async def open(self) -> None:
        for _ in range(3):
            await self.call("server_error")
        assert self.breaker.state == OPEN

    def starts(self) -> tuple[asyncio.Task[Any], asyncio.Future[None]]:
        """A call under way, and the future that ends it."""
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return asyncio.create_task(self.breaker.through(end)), end


@pytest.mark.parametrize("cause", CAUSES)
async def test_what_counts(cause: str) -> None:
    rig = Rig()
    for _ in range(3):
        assert rig.breaker.ready
        await rig.call(cause)
    assert (rig.breaker.state == OPEN) == CAUSES[cause].fault
    assert rig.breaker.ready != CAUSES[cause].fault


async def test_only_failures_in_a_row_open_it() -> None:
    rig = Rig()
    for end in ("cut", "cut", None, "cut", "cut"):
        await rig.call(end)
    assert rig.breaker.state == CLOSED
    await rig.call("bad_parameters")  # says nothing, either way
    await rig.call("cut")
    assert rig.breaker.state == OPEN


async def test_its_way() -> None:
    rig = Rig()
    assert (rig.breaker.why_not, rig.breaker.until) == (None, 0.0)
    await rig.open()
    rig.now += 3.5
    assert (rig.breaker.why_not, rig.breaker.until) == ("its breaker is open for 7 s", 1010.0)
    rig.now += 6.5
    assert (rig.breaker.state, rig.breaker.ready, rig.breaker.why_not) == (HALF_OPEN, True, None)
    await rig.call("timeout")
    assert (rig.breaker.state, rig.breaker.until) == (OPEN, 1020.0)
    rig.now += 10
    await rig.call()
    assert rig.breaker.state == CLOSED
    await rig.call("cut")
    assert rig.breaker.state == CLOSED


async def test_one_probe_at_a_time() -> None:
    rig = Rig()
    await rig.open()
    rig.now += 10
    probe, end = rig.starts()
    await asyncio.sleep(0)
    assert not rig.breaker.ready
    assert rig.breaker.why_not == "its breaker is half-open and being probed"
    await rig.call("rate_limit")  # one that had nowhere else to go; it is not the probe
    assert not rig.breaker.ready
    end.set_result(None)
    await probe
    assert rig.breaker.state == CLOSED


@pytest.mark.parametrize("end", ["abandoned", KeyError("ours"), UpstreamFailure("bad_parameters", "")], ids=str)
async def test_a_probe_without_a_verdict_makes_room_for_the_next(end: str | Exception) -> None:
    rig = Rig()
    await rig.open()
    rig.now += 10
    if isinstance(end, Exception):
        await rig.call(end)
    else:
        probe, _ = rig.starts()
        await asyncio.sleep(0)
        probe.cancel()
        await asyncio.wait([probe])
    assert (rig.breaker.state, rig.breaker.ready) == (HALF_OPEN, True)


async def test_what_began_before_the_opening_does_not_close_it() -> None:
    rig = Rig()
    old, end = rig.starts()
    await asyncio.sleep(0)
    rig.now += 1
    await rig.open()
    end.set_result(None)
    await old
    assert rig.breaker.state == OPEN
    await rig.call()  # one that had nowhere else to go
    assert rig.breaker.state == CLOSED


async def test_failures_while_it_is_open_do_not_prolong_it() -> None:
    rig = Rig()
    await rig.open()
    rig.now += 9
    await rig.call("timeout")
    assert rig.breaker.until == 1010.0


@pytest.mark.parametrize("cause", ["rate_limit", "overloaded", "quota"])
async def test_a_stated_pause_is_kept(cause: str) -> None:
    rig = Rig()
    await rig.call(cause, retry_after=30.0)
    assert rig.breaker.why_not == "its upstream has asked for a pause for 30 s"
    rig.now += 30
    assert rig.breaker.ready
    await rig.call()
    assert rig.breaker.state == CLOSED


async def test_pauses_have_a_cap_and_callers_cannot_cause_any() -> None:
    rig = Rig()
    await rig.call("bad_parameters", retry_after=30.0)
    await rig.call("rate_limit")
    await rig.call("rate_limit", retry_after=0.0)
    assert rig.breaker.state == CLOSED
    await rig.call("rate_limit", retry_after=287441.0)
    assert rig.breaker.until == 1000.0 + LONGEST_REST
    await rig.call("rate_limit", retry_after=5.0)
    assert rig.breaker.until == 1000.0 + LONGEST_REST


async def test_causes_that_open_it_at_once() -> None:
    rig = Rig(frozenset({"connect"}))
    await rig.call("timeout")
    assert rig.breaker.state == CLOSED
    await rig.call("connect")
    assert rig.breaker.state == OPEN


# -- all of them


async def failed(breaker: Breaker) -> None:
    async def asking() -> None:
        raise UpstreamFailure("cut", "")

    with pytest.raises(UpstreamFailure):
        await breaker.through(asking())


async def test_breakers_outlive_a_reload_by_name() -> None:
    breakers = Breakers(lambda: 1000.0)
    m0, m1 = a_model("m0"), a_model("m1")
    by_name = breakers.configure([m0, m1], 1, 10.0)
    await failed(by_name["m0"])
    assert breakers.why_not(m0) == "its breaker is open for 10 s"
    assert breakers.states() == {("u0", "m0"): OPEN, ("u0", "m1"): CLOSED}
    again = breakers.configure([a_model("m0"), a_model("m2")], 1, 10.0)
    assert again["m0"] is by_name["m0"]
    assert breakers.states() == {("u0", "m0"): OPEN, ("u0", "m2"): CLOSED}
    await failed(by_name["m1"])  # a call of the older configuration
    assert breakers.why_not(m1) is None


async def test_the_same_model_elsewhere_starts_anew() -> None:
    breakers = Breakers(lambda: 1000.0)
    await failed(breakers.configure([a_model("m0")], 1, 10.0)["m0"])
    moved = a_model("m0", an_upstream("u9"))
    breakers.configure([moved], 1, 10.0)
    assert breakers.states() == {("u9", "m0"): CLOSED}


async def test_several_replicas_may_fail_several_times_as_often() -> None:
    """One of them that hangs has its own breaker, and must not close the door to the others."""
    target = an_upstream().targets[0]
    breakers = Breakers(lambda: 1000.0)
    breaker = breakers.configure([a_model("m0", an_upstream(targets=(target, target)))], 2, 10.0)["m0"]
    for _ in range(3):
        await failed(breaker)
    assert breaker.state == CLOSED
    await failed(breaker)
    assert breaker.state == OPEN


async def test_new_limits_hold_for_old_breakers() -> None:
    breakers = Breakers(lambda: 1000.0)
    breaker = breakers.configure([a_model("m0")], 5, 10.0)["m0"]
    breakers.configure([a_model("m0")], 1, 20.0)
    await failed(breaker)
    assert breaker.until == 1020.0
