"""The limit stage over a real store in memory, on a clock of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from gateway.accounting.price import cost
from gateway.call import Attempt, Call, Caller, NoLease, Plan, Usage
from gateway.config.runtime import Budget, Limit, Limits, Price
from gateway.errors import GatewayError, UpstreamFailure
from gateway.limits.budgets import Budgets
from gateway.limits.demand import Sizes
from gateway.limits.limiter import Limiter, Means, Running
from gateway.limits.memory import MemoryStore
from gateway.limits.store import Demand, StoreDown, Taken
from tests.unit.building import a_call, a_model, a_runtime, answered

FAST = a_model("fast", price=Price(input=Decimal(1), output=Decimal(2)))
GOOD = a_model("good", price=Price(input=Decimal(10), output=Decimal(20)))
CI = Caller("ci", team="core")


class Rig:
    """A limiter whose minute is a second, on a clock that the test moves. A prompt has 100 tokens."""

    def __init__(self, limits: Limits | None = None, store: Any = None) -> None:
        self.now = 1000.0
        self.store = store or MemoryStore(1.0, 30.0, now=lambda: self.now)
        self.refused: list[str] = []
        self.spent = 0
        self.means = Means(
            store=self.store,
            sizes=Sizes(first_tokens=50),
            running=Running(),
            prompt_tokens=lambda call: 100,
            closer=lambda call: 80,
            price=cost,
            spent=lambda kind, name, per, now: self.spent,
            refused=self.refused.append,
            budgets=Budgets(),
            period=1.0,
        )
        self.limiter = Limiter(a_runtime(FAST, GOOD, limits=limits or Limits()), self.means)

    def call(self, caller: Caller = CI, models: Sequence[Any] = (FAST,), **fields: Any) -> Call:
        call = a_call(json.dumps({"model": "auto", "messages": [], **fields}).encode())
        call.caller = caller
        call.plan = Plan("auto", "default", tuple(Attempt(model, "") for model in models))
        return call

    async def admit(self, *args: Any, **fields: Any) -> Call:
        call = self.call(*args, **fields)
        call.lease = await self.limiter.admit(call)
        return call

    async def refusal(self, *args: Any, **fields: Any) -> GatewayError:
        with pytest.raises(GatewayError) as refusal:
            await self.admit(*args, **fields)
        return refusal.value


def end(call: Call, model: Any = FAST, completion: int = 0, usd: str = "0", sizes: Sizes | None = None) -> None:
    """The call has an answer (10 prompt tokens) and is over."""
    answered(call, model, completion=completion, cost=usd).lease.settle(call)
    if sizes is not None:
        sizes.learn(call)


async def test_without_limits_there_is_nothing_to_hold() -> None:
    call = await Rig().admit()
    assert isinstance(call.lease, NoLease)
    assert call.limits == ()


async def test_a_callers_own_limits_take_the_place_of_the_default() -> None:
    rig = Rig(Limits(default=Limit(requests_per_minute=1)))
    own = Caller("own", limits=Limit(requests_per_minute=2))
    for caller in (own, own, CI, Caller()):
        await rig.admit(caller)
    assert (await rig.refusal(own)).message == "The limit of 2 requests per minute of key 'own' is reached."
    assert (await rig.refusal(CI)).code == "rate_limit_exceeded"
    assert (await rig.refusal(Caller())).retry_after == pytest.approx(1.0, abs=0.01)
    assert rig.refused == ["key_requests"] * 3


async def test_what_a_call_meets_is_noted() -> None:
    models = {"good": Limit(concurrency=4)}
    rig = Rig(Limits(default=Limit(requests_per_minute=2), models=models))
    call = await rig.admit(models=(FAST, GOOD))
    await rig.admit()
    await call.lease.enter(GOOD)
    met = {(row["kind"], row["name"], row["what"]): row["capacity"] for row in rig.means.edges.nearest()}
    assert met == {("key", CI.key, "requests"): 2.0, ("model", "good", "concurrency"): 4.0}


@pytest.mark.parametrize("section", ["teams", "routes", "models"])
async def test_everybody_whose_limit_a_call_meets_is_asked(section: str) -> None:
    name = {"teams": "core", "routes": "auto", "models": "fast"}[section]
    rig = Rig(Limits(**{section: {name: Limit(requests_per_minute=1)}}))  # type: ignore[arg-type]
    await rig.admit()
    assert f"{section[:-1]} '{name}'" in (await rig.refusal(Caller("another", team="core"))).message
    assert rig.refused == [f"{section[:-1]}_requests"]


async def test_a_refusal_takes_nothing_from_the_others() -> None:
    rig = Rig(Limits(default=Limit(requests_per_minute=2), teams={"core": Limit(requests_per_minute=1)}))
    await rig.admit()
    for _ in range(5):
        await rig.refusal()
    await rig.admit(dataclasses.replace(CI, team=None))


async def test_tokens_are_reserved_and_settled_to_what_was_used() -> None:
    rig = Rig(Limits(default=Limit(tokens_per_minute=1000)))
    call = await rig.admit(max_tokens=700)
    assert dict(call.limits)[b"x-ratelimit-remaining-tokens"] == b"200"
    assert (await rig.refusal(max_tokens=101)).retry_after == pytest.approx(0.001, abs=0.0005)
    end(call, completion=20)
    assert dict((await rig.admit(max_tokens=0)).limits)[b"x-ratelimit-remaining-tokens"] == b"870"


async def test_more_tokens_than_reserved_become_a_debt() -> None:
    rig = Rig(Limits(default=Limit(tokens_per_minute=1000)))
    end(await rig.admit(max_tokens=10), completion=1990)
    assert (await rig.refusal(max_tokens=0)).retry_after == pytest.approx(1.1, abs=0.01)


async def test_a_call_without_an_answer_costs_a_request_and_no_tokens() -> None:
    rig = Rig(Limits(default=Limit(requests_per_minute=9, tokens_per_minute=1000)))
    call = await rig.admit(max_tokens=700)
    call.lease.settle(call)
    told = dict((await rig.admit(max_tokens=0)).limits)
    assert (told[b"x-ratelimit-remaining-tokens"], told[b"x-ratelimit-remaining-requests"]) == (b"900", b"7")


async def test_what_is_spent_of_budgets_is_told_at_once() -> None:
    month = Budget(Decimal("0.01"), "month")
    rig, caller = Rig(Limits(team_budgets={"core": month})), Caller("ci", team="core", budget=month)
    call = await rig.admit(caller, max_tokens=100)
    reserved = 100 * 1e-6 + 100 * 2e-6
    assert await rig.limiter.spent(caller) == {"key": pytest.approx(reserved), "team": pytest.approx(reserved)}
    end(call, usd="0.0002")
    rig.spent = 300_000
    assert await rig.limiter.spent(caller) == {"key": pytest.approx(0.0003), "team": pytest.approx(0.0003)}
    assert await rig.limiter.spent(Caller("another")) == {}
    closed = Rig(store=Down())
    assert await closed.limiter.spent(caller) == {}


@pytest.mark.parametrize("section", ["default", "models"])
async def test_a_rough_count_refuses_nothing_for_good(section: str) -> None:
    limit = Limit(tokens_per_minute=90)
    rig = Rig(Limits(**{section: limit if section == "default" else {"fast": limit}}))  # type: ignore[arg-type]
    await rig.admit(max_tokens=10)
    assert "may use 91 tokens" in (await rig.refusal(max_tokens=11)).message


async def test_what_can_never_fit_is_told_so() -> None:
    error = await Rig(Limits(default=Limit(tokens_per_minute=1000))).refusal(max_tokens=1000)
    assert (error.should_retry, error.retry_after) == (False, None)
    assert "1080 tokens" in error.message


async def test_usual_sizes_are_learned() -> None:
    rig = Rig(Limits(default=Limit(tokens_per_minute=1000)))
    call = await rig.admit()
    assert dict(call.limits)[b"x-ratelimit-remaining-tokens"] == b"850"
    end(call, completion=300, sizes=rig.means.sizes)
    rig.now += 5
    assert dict((await rig.admit()).limits)[b"x-ratelimit-remaining-tokens"] == b"600"


async def test_slots_are_freed_once() -> None:
    rig = Rig(Limits(default=Limit(concurrency=2)))
    first, second = await rig.admit(), await rig.admit()
    assert (await rig.refusal()).message.endswith("at the same time (2).")
    first.lease.settle(first)
    first.lease.settle(first)
    third = await rig.admit()
    await rig.refusal()
    assert len(rig.means.running) == 2
    for call in (second, third):
        call.lease.settle(call)
    assert len(rig.means.running) == 0


async def test_running_calls_keep_their_slots() -> None:
    rig = Rig(Limits(default=Limit(concurrency=1)))
    call = await rig.admit()
    keeper = asyncio.create_task(rig.means.running.keep(rig.store, 0.001))
    for _ in range(4):
        rig.now += 20
        for _ in range(3):  # seconds of the test's clock, milliseconds of the keeper's
            await asyncio.sleep(0.002)
        await rig.refusal()
    keeper.cancel()
    rig.now += 31
    await rig.admit()
    call.lease.settle(call)


# -- models


async def test_a_model_without_room_leaves_the_plan() -> None:
    rig = Rig(Limits(models={"fast": Limit(concurrency=1)}))
    first = await rig.admit(models=(FAST, GOOD))
    second = await rig.admit(models=(FAST, GOOD))
    assert second.plan is not None
    assert [a.model.name for a in second.plan.attempts] == ["good"]
    assert second.plan.skipped == (("fast", "its limit of concurrency is reached"),)
    assert (await rig.refusal(models=(FAST,))).code == "rate_limit_exceeded"
    first.lease.settle(first)
    third = await rig.admit(models=(FAST, GOOD))
    assert third.plan is not None
    assert [a.model.name for a in third.plan.attempts] == ["fast", "good"]


async def test_a_fallback_enters_the_next_models_limits() -> None:
    rig = Rig(Limits(models={"good": Limit(concurrency=1, tokens_per_minute=1000)}))
    call = await rig.admit(models=(FAST, GOOD))
    await call.lease.enter(FAST)
    await call.lease.enter(GOOD)
    await call.lease.enter(GOOD)
    other = await rig.admit(models=(FAST, GOOD))
    await other.lease.enter(FAST)
    with pytest.raises(UpstreamFailure, match="as many calls under way") as full:
        await other.lease.enter(GOOD)
    assert full.value.cause == "limit"
    end(call, GOOD, completion=890)
    with pytest.raises(UpstreamFailure, match="The limit of 1000 tokens per minute of model 'good'"):
        await other.lease.enter(GOOD)


async def test_tokens_count_for_the_model_that_answered() -> None:
    limit = Limit(tokens_per_minute=1000)
    rig = Rig(Limits(models={"fast": limit, "good": limit}))
    call = await rig.admit(models=(FAST, GOOD), max_tokens=100)
    await call.lease.enter(GOOD)
    end(call, GOOD, completion=390)
    left = {m.name: dict((await rig.admit(models=(m,), max_tokens=0)).limits) for m in (FAST, GOOD)}
    assert left["fast"][b"x-ratelimit-remaining-tokens"] == b"900"
    assert left["good"][b"x-ratelimit-remaining-tokens"] == b"500"


# -- money

PAYING = Caller("ci", team="core", budget=Budget(Decimal("0.01"), "total"))


async def test_a_budget_is_reserved_and_settled() -> None:
    rig = Rig()
    call = await rig.admit(PAYING, max_tokens=4000)  # $0.0001 + $0.008 at most
    held = await rig.admit(PAYING, max_tokens=4000)  # the rest of it
    error = await rig.refusal(PAYING, max_tokens=1)
    assert (error.code, error.should_retry) == ("insufficient_quota", False)
    end(call, usd="0.001")
    end(held, usd="0.001")
    end(await rig.admit(PAYING, max_tokens=4000), usd="0.008")
    assert (await rig.refusal(PAYING)).code == "insufficient_quota"
    assert rig.refused == ["key_budget"] * 2


async def test_the_dearest_model_of_the_plan_is_reserved_for() -> None:
    rig = Rig()
    await rig.admit(PAYING, models=(FAST, GOOD), max_tokens=450)  # $0.01 with the fallback
    await rig.refusal(PAYING, models=(FAST,), max_tokens=1)


async def test_only_one_call_can_spend_more_than_is_left() -> None:
    rig = Rig()
    calls = [await rig.admit(PAYING, max_tokens=4000), await rig.admit(PAYING, max_tokens=4000)]
    await rig.refusal(PAYING)
    for call in calls:
        end(call, usd="0.0081")
    assert sum(call.cost for call in calls) < PAYING.budget.usd + Decimal("0.0081")  # type: ignore[union-attr]


async def test_what_the_ledger_knows_counts() -> None:
    rig = Rig(Limits(teams={"core": Limit()}, team_budgets={"core": Budget(Decimal(1))}))
    await rig.admit()
    rig.spent = 10**9
    assert "team 'core'" in (await rig.refusal()).message


async def test_a_model_priced_by_time_is_reserved_for_as_its_calls_usually_cost() -> None:
    timed = a_model("timed", price=Price(gpu_second=Decimal("0.001")))
    rig = Rig()
    end(await rig.admit(PAYING, models=(timed,)), timed, usd="0.004", sizes=rig.means.sizes)
    await rig.admit(PAYING, models=(timed,))
    await rig.admit(PAYING, models=(timed,))
    await rig.refusal(PAYING, models=(timed,))


# -- a store that is down


class Down:
    """A store that never answers, as `closed` has it."""

    async def take(self, lease: str, demands: Sequence[Demand]) -> Taken:
        raise StoreDown

    async def peek(self, demands: Sequence[Demand]) -> tuple[int, ...]:
        raise StoreDown


async def test_without_its_store_nothing_is_admitted_and_that_is_said() -> None:
    error = await Rig(Limits(default=Limit(concurrency=1)), Down()).refusal()
    assert (error.code, error.status, error.retry_after) == ("limits_unavailable", 503, 1)


def test_usage_of_the_price() -> None:
    assert cost(FAST, Usage(100, 50)) == Decimal("0.0002")
