"""The limit stage: reserve for a call with everyone whose limits it meets, settle once at its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property

import msgspec

from gateway import parameters
from gateway.call import Attempt, Call, Caller, Lease, NoLease, Usage
from gateway.config.runtime import Model, Runtime
from gateway.errors import GatewayError, UpstreamFailure
from gateway.limits.budgets import Budgets
from gateway.limits.demand import Scope, Sizes, Wanted, most_completion, nano, of_budget, of_limit
from gateway.limits.edges import Edges
from gateway.limits.report import headers, refusal
from gateway.limits.store import NANO, Purse, Rate, Settled, Slot, Store, StoreDown, Taken


@dataclass(frozen=True, slots=True)
class Means:
    """What the limiter of every configuration works with; lives as long as the process."""

    store: Store
    sizes: Sizes
    running: Running
    prompt_tokens: Callable[[Call], int]
    """A rough count, rather too high."""
    closer: Callable[[Call], int]
    """A better estimate, for more work."""
    price: Callable[[Model, Usage], Decimal]
    """USD for such an answer."""
    spent: Callable[[str, str, str, datetime], int]
    """(kind, name, per, now) -> nano-dollars of that period, as the ledger knows them."""
    refused: Callable[[str], None]
    """Count a refusal by its label."""
    budgets: Budgets
    period: float = 60.0
    """Seconds in which the store's buckets fill up."""
    edges: Edges = field(default_factory=Edges)


class Running:
    """The leases of calls under way, prolonged together while they last."""

    def __init__(self) -> None:
        self._held: set[Held] = set()
        self._process = os.urandom(8).hex()
        self._count = 0

    def name(self) -> str:
        """A name for a lease that no other call has, in any process."""
        self._count += 1
        return f"{self._process}-{self._count:x}"

    def add(self, held: Held) -> None:
        """A lease that has to be kept alive."""
        self._held.add(held)

    def discard(self, held: Held) -> None:
        """It is settled."""
        self._held.discard(held)

    def __len__(self) -> int:
        return len(self._held)

    async def keep(self, store: Store, seconds: float) -> None:
        """Every so many seconds, for good."""
        while True:
            await asyncio.sleep(seconds)
            if self._held:
                store.renew([(held.id, held.lasting()) for held in self._held])


class Limiter:
    """The limit stage of one configuration."""

    def __init__(self, runtime: Runtime, means: Means) -> None:
        self._limits = runtime.limits
        self._means = means

    async def admit(self, call: Call) -> Lease:
        """Reserve for a call. Models whose own limits leave no room are taken out of its plan; if none remains, or
        another limit refuses: GatewayError rate_limit_exceeded, insufficient_quota. limits_unavailable where the store
        is down and the configuration says `closed`."""
        plan = call.plan
        if plan is None or not self._limited(call.caller):
            return NoLease()
        held = Held(self._means.running.name(), call, Most(call, self._means), self)
        common = list(self._of_caller(held, plan.attempts))
        for position, attempt in enumerate(plan.attempts):
            wanted = [*common, *self._of_model(held, attempt.model)]
            taken = await self._take(held, wanted)
            call.limits = headers(wanted, taken, self._means.period)
            self._means.budgets.note(wanted, taken)
            self._means.edges.note(wanted, taken)
            if taken.refused is None:
                held.add(attempt.model.name, wanted, taken)
                if position:
                    skipped = (*plan.skipped, *held.full)
                    call.plan = msgspec.structs.replace(plan, attempts=plan.attempts[position:], skipped=skipped)
                return held
            culprit = wanted[taken.refused]
            self._means.refused(culprit.label)
            if culprit.scope.kind != "model" or attempt is plan.attempts[-1]:
                raise refusal(culprit, taken.wait, datetime.now(UTC))
            held.full.append((attempt.model.name, f"its limit of {culprit.what} is reached"))
        return NoLease()  # a plan without attempts does not come here

    async def _take(self, held: Held, wanted: list[Wanted]) -> Taken:
        if not wanted:
            return Taken(None, 0.0, ())
        try:
            return await self._means.store.take(held.id, [w.demand for w in wanted])
        except StoreDown:
            raise GatewayError(
                "limits_unavailable", "The limits cannot be checked now, so nothing is admitted.", retry_after=1
            ) from None

    # -- who is asked

    def scopes(self, caller: Caller, route: str) -> Iterator[Scope]:
        """Whose limits and budgets a caller's calls to a route meet, models aside."""
        limits = self._limits
        yield Scope("key", caller.key, caller.limits or limits.default, caller.budget)
        if caller.team is not None:
            yield Scope("team", caller.team, limits.teams.get(caller.team), limits.team_budgets.get(caller.team))
        yield Scope("route", route, limits.routes.get(route))

    def _limited(self, caller: Caller) -> bool:
        limits = self._limits
        return bool(caller.limits or caller.budget or limits.default or limits.teams or limits.models or limits.routes)

    def _of_caller(self, held: Held, attempts: tuple[Attempt, ...]) -> Iterator[Wanted]:
        route = held.call.plan.route if held.call.plan else ""
        now = datetime.now(UTC)
        for scope in self.scopes(held.call.caller, route):
            if scope.limit is not None:
                room = scope.limit.tokens_per_minute
                tokens = 0 if room is None else max(held.most.tokens(a.model, room) for a in attempts)
                yield from of_limit(scope, tokens)
            if scope.budget is not None:
                spent = self._means.spent(scope.kind, scope.name, scope.budget.per, now)
                yield from of_budget(scope, max(held.most.usd(a.model) for a in attempts), spent, now)

    def _of_model(self, held: Held, model: Model) -> Iterator[Wanted]:
        limit = self._limits.models.get(model.name)
        if limit is not None:
            room = limit.tokens_per_minute
            yield from of_limit(Scope("model", model.name, limit), 0 if room is None else held.most.tokens(model, room))

    async def spent(self, caller: Caller) -> dict[str, float]:
        """`key`, `team` -> dollars of its budget that are spent, or reserved by calls under way; without those that
        nobody can tell now."""
        now, wanted = datetime.now(UTC), list[Wanted]()
        for scope in self.scopes(caller, ""):
            if scope.budget is not None:
                spent = self._means.spent(scope.kind, scope.name, scope.budget.per, now)
                wanted += of_budget(scope, Decimal(0), spent, now)
        try:
            left = await self._means.store.peek([one.demand for one in wanted]) if wanted else ()
        except StoreDown:
            return {}
        return {o.scope.kind: (o.demand.capacity - rest) / NANO for o, rest in zip(wanted, left, strict=True)}

    # -- a call under way

    async def enter(self, held: Held, model: Model) -> None:
        """Reserve with a further model's own limits. Raises UpstreamFailure `limit`."""
        wanted = list(self._of_model(held, model))
        taken = await self._take(held, wanted)
        self._means.edges.note(wanted, taken)
        if taken.refused is not None:
            culprit = wanted[taken.refused]
            self._means.refused(culprit.label)
            error = refusal(culprit, taken.wait, datetime.now(UTC))
            raise UpstreamFailure("limit", error.message, retry_after=error.retry_after)
        held.add(model.name, wanted, taken)

    def keep(self, held: Held) -> None:
        """Prolong its slots and reservations while the call lasts."""
        self._means.running.add(held)

    def settle(self, held: Held, settled: list[Settled]) -> None:
        """Send the settlement."""
        self._means.running.discard(held)
        if settled:
            self._means.store.settle(held.id, settled)
            self._means.edges.freed(settled)


class Most:
    """The most that one call may use."""

    def __init__(self, call: Call, means: Means) -> None:
        self._call = call
        self._means = means

    @cached_property
    def _prompt(self) -> int:
        return self._means.prompt_tokens(self._call)

    @cached_property
    def _prompts(self) -> int:
        return self._call.body.prompts

    def _usage(self, model: Model) -> Usage:
        usual = self._means.sizes.tokens(model.name)
        asked = parameters.altered(self._call.body, model.parameters)
        return Usage(self._prompt, most_completion(self._call.endpoint, asked, self._prompts, usual))

    def tokens(self, model: Model, room: int) -> int:
        """Prompt and completion. A rough count alone refuses nothing for good: beyond `room` a closer one is made."""
        usage = self._usage(model)
        if usage.prompt + usage.completion > room:
            self._prompt = min(self._prompt, self._means.closer(self._call))
            usage = self._usage(model)
        return usage.prompt + usage.completion

    def usd(self, model: Model) -> Decimal:
        """Its price; where that goes by time, what such calls usually cost."""
        usd = self._means.price(model, self._usage(model))
        return usd or self._means.sizes.usd(model.name, usd)


class Held:
    """What one call has reserved. See `call.Lease`."""

    def __init__(self, name: str, call: Call, most: Most, limiter: Limiter) -> None:
        self.id = name
        self.call = call
        self.most = most
        self.full: list[tuple[str, str]] = []
        """(model, why) for what had no room."""
        self._limiter = limiter
        self._entered: set[str] = set()
        self._taken: list[tuple[Wanted, int]] = []

    def add(self, model: str, wanted: list[Wanted], taken: Taken) -> None:
        """These demands are reserved, the model's own among them."""
        self._entered.add(model)
        self._taken += zip(wanted, taken.reserved, strict=True)
        if any(isinstance(w.demand, Slot | Purse) for w in wanted):
            self._limiter.keep(self)

    def lasting(self) -> list[Slot | Purse]:
        """What would expire if nobody prolonged it."""
        return [w.demand for w, _ in self._taken if isinstance(w.demand, Slot | Purse)]

    async def enter(self, model: Model) -> None:
        """See `call.Lease`."""
        if model.name not in self._entered:
            await self._limiter.enter(self, model)

    def settle(self, call: Call) -> None:
        """See `call.Lease`."""
        settled = [Settled(w.demand, reserved, self._used(w, call)) for w, reserved in self._taken]
        self._taken = []
        self._limiter.settle(self, [s for s in settled if isinstance(s.demand, Slot | Purse) or s.reserved != s.used])

    def _used(self, wanted: Wanted, call: Call) -> int:
        answered = call.answered
        if isinstance(wanted.demand, Slot):
            return 0
        if isinstance(wanted.demand, Rate) and wanted.what == "requests":
            return 1
        if answered is None or (wanted.scope.kind == "model" and wanted.scope.name != answered.model.name):
            return 0
        return nano(call.cost) if wanted.what == "budget" else call.usage.prompt + call.usage.completion
