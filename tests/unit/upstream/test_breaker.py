"""Breakers by a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.config.runtime import Model, Target
from gateway.errors import CAUSES, UpstreamFailure
from gateway.upstream.breaker import CLOSED, HALF_OPEN, LONGEST_REST, OPEN, Breaker, Breakers, Group, Limits
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


@pytest.mark.parametrize("cause", CAUSES)
async def test_committed_answers_that_break_off_count_by_themselves(cause: str) -> None:
    """Each of them had begun well."""
    rig = Rig()
    for _ in range(3):
        assert rig.breaker.ready
        await rig.call()
        rig.breaker.ended(UpstreamFailure(cause, ""))
    assert (rig.breaker.state == OPEN) == CAUSES[cause].fault


async def test_a_whole_answer_ends_their_row() -> None:
    rig, cut = Rig(), UpstreamFailure("cut", "")
    for end in (cut, cut, None, cut, cut):
        rig.breaker.ended(end)
    assert rig.breaker.state == CLOSED
    rig.breaker.ended(cut)
    assert rig.breaker.why_not == "its breaker is open (answers broke off) for 10 s"
    rig.now += 10
    await rig.call()  # it begins well again
    assert rig.breaker.state == CLOSED
    rig.breaker.ended(cut)
    assert rig.breaker.state == OPEN


async def test_an_error_in_an_answer_counts_by_what_it_says() -> None:
    rig = Rig()
    for _ in range(3):
        rig.breaker.ended(UpstreamFailure("embedded", "", body=b'{"error":{"code":"content_filter","message":"no"}}'))
    assert rig.breaker.state == CLOSED
    for _ in range(3):
        rig.breaker.ended(UpstreamFailure("embedded", "", body=b'{"error":{"code":500,"message":"no"}}'))
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


A, B = (Target("http", "127.0.0.1", port, "/v1") for port in (1, 2))


async def failed(breaker: Breaker, cause: str = "cut") -> None:
    async def asking() -> None:
        raise UpstreamFailure(cause, "")

    with pytest.raises(UpstreamFailure):
        await breaker.through(asking())


class Registry:
    """Breakers of one failure and ten seconds, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.breakers = Breakers(lambda: self.now)

    def configure(self, *models: Model, failures: int = 1, open_seconds: float = 10.0) -> Mapping[str, Group]:
        return self.breakers.configure(models, failures, open_seconds)


def at(*targets: Target, name: str = "m0", upstream: str = "u0") -> Model:
    return a_model(name, an_upstream(upstream, targets=targets))


async def test_breakers_outlive_a_reload() -> None:
    registry = Registry()
    m0, m1 = at(A), at(A, name="m1")
    before = registry.configure(m0, m1)
    await failed(before["m0"].breakers[0])
    assert registry.breakers.why_not(m0) == "its breaker is open for 10 s"
    assert registry.breakers.states() == {("u0", "m0"): OPEN, ("u0", "m1"): CLOSED}
    after = registry.configure(at(A), at(A, name="m2"))
    assert after["m0"].breakers == before["m0"].breakers
    assert registry.breakers.states() == {("u0", "m0"): OPEN, ("u0", "m2"): CLOSED}
    await failed(before["m1"].breakers[0])  # a call of the older configuration
    assert registry.breakers.why_not(m1) is None


@pytest.mark.parametrize("moved", [at(A, upstream="u9"), at(B)], ids=["another upstream", "another address"])
async def test_the_same_model_elsewhere_starts_anew(moved: Model) -> None:
    registry = Registry()
    await failed(registry.configure(at(A))["m0"].breakers[0])
    registry.configure(moved)
    assert registry.breakers.states() == {(moved.upstream.name, "m0"): CLOSED}


async def test_a_model_is_as_well_as_its_best_address() -> None:
    registry = Registry()
    model = at(A, B)
    group = registry.configure(model)["m0"]
    await failed(group.breakers[0])
    assert (group.ready, group.state, group.until, group.why_not) == (True, CLOSED, 0.0, None)
    registry.now += 4
    await failed(group.breakers[1])
    assert (group.ready, group.state, group.until) == (False, OPEN, 1010.0)
    assert registry.breakers.why_not(model) == "its breaker is open for 6 s"
    registry.now += 6
    assert (group.ready, group.state, group.why_not) == (True, HALF_OPEN, None)


async def test_a_refused_connection_puts_one_of_several_out_at_once() -> None:
    registry = Registry()
    one, several = (registry.configure(model, failures=5)["m0"] for model in (at(A), at(A, B)))
    assert several.breakers[0] is one.breakers[0]
    await failed(several.breakers[0], "connect")
    await failed(several.breakers[1], "timeout")
    assert [b.state for b in several.breakers] == [OPEN, CLOSED]
    alone = registry.configure(at(B), failures=5)["m0"]
    for _ in range(3):
        await failed(alone.breakers[0], "connect")
    assert alone.state == CLOSED  # four in a row


async def test_without_an_address_nothing_is_ready() -> None:
    group = Registry().configure(at())["m0"]
    assert (group.ready, group.state, group.until) == (False, OPEN, 0.0)


async def test_new_limits_hold_for_old_breakers() -> None:
    registry = Registry()
    breaker = registry.configure(at(A), failures=5)["m0"].breakers[0]
    registry.configure(at(A), failures=1, open_seconds=20.0)
    await failed(breaker)
    assert breaker.until == 1020.0
