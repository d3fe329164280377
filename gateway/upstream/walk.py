"""Walks the plan: one attempt after the other until one commits. It chooses nothing; the plan did.

What it adds is caution: models that are left alone come last (`breaker.py`), and once nothing else is left, a failure
that is safe to repeat is repeated once (`retry.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from gateway import clock
from gateway.call import Answer, Attempt, Call, Incoming, Plan, Tried, Usage
from gateway.config.runtime import Model
from gateway.errors import CAUSES, GatewayError, UpstreamFailure
from gateway.upstream import classify, request
from gateway.upstream.replicas import Door, Replica, Replicas
from gateway.upstream.retry import Failed, Retries

_MAX_REFUSAL = 64 * 1024
"""Bytes of an error body that are read."""

_REFUSAL_SECONDS = 2.0
"""For which the rest of an error body is waited for."""
BACK_SOON = 5.0
"""Seconds after which a caller may ask for an engine that is down again."""

Hold = Callable[[Call, Attempt, Incoming, float], Awaitable[Answer]]
"""The relay's part of an attempt: the answer once it has committed."""


class Down(NamedTuple):
    """An engine that was not asked, and why."""

    model: str
    upstream: str
    why: str

    def __str__(self) -> str:
        return f"{self.model} via {self.upstream}: {self.why}"


class Walker:
    """The upstream stage of one configuration."""

    def __init__(
        self,
        replicas: Mapping[str, Replicas],
        retries: Retries,
        ids: Callable[[Attempt], str],
        unknown: Callable[[Model], None] = lambda model: None,
    ) -> None:
        self._replicas = replicas
        """By model name."""
        self._retries = retries
        self._model_id = ids
        """The id to send for an attempt's model (alias lists are resolved elsewhere)."""
        self._unknown = unknown
        """Told of a model whose id its upstream does not know."""

    async def open(self, call: Call, plan: Plan, hold: Hold) -> Answer:
        """The first answer that commits. Raises GatewayError once no attempt is left or none may follow."""
        failed: list[Failed] = []
        down: list[Down] = []
        asked: set[Replica] = set()
        turns = self._turns(plan, failed, down)
        attempt = next(turns, None)
        if attempt is None:
            raise _nobody(call, down)
        while attempt is not None:
            try:
                answer = await self._attempt(call, attempt, hold, asked)
                call.answered = attempt
                return answer
            except UpstreamFailure as failure:
                failed.append(Failed(attempt, failure.with_traceback(None)))  # whose frames hold this list
            attempt = await self._next(call, turns, failed, asked)
        raise _verdict(call, failed, down)

    def _turns(self, plan: Plan, failed: Sequence[Failed], down: list[Down]) -> Iterator[Attempt]:
        """The attempts whose breakers let calls through when their turn comes; then of the others the soonest back.
        Those whose engines are known to be down go to `down`: while one loads, a call would only wait in vain."""
        resting: list[Attempt] = []
        for attempt in plan.attempts:
            replicas = self._replicas[attempt.model.name]
            if (why := replicas.down) is not None:
                down.append(Down(attempt.model.name, attempt.model.upstream.name, why))
            elif not replicas.group.ready:
                resting.append(attempt)
            elif _fits(attempt, failed):
                yield attempt
        resting = [attempt for attempt in resting if _fits(attempt, failed)]
        if resting:
            yield min(resting, key=lambda attempt: self._replicas[attempt.model.name].group.until)

    async def _next(
        self, call: Call, turns: Iterator[Attempt], failed: Sequence[Failed], asked: set[Replica]
    ) -> Attempt | None:
        """What to try after a failure: the plan's next, or, after a wait, what is safe to repeat. None: the end."""
        remaining = call.deadline - clock.now()
        over = CAUSES[failed[-1].failure.cause].next == "no" or remaining <= 0
        if over or len(failed) >= call.runtime.gateway.attempts:
            return None
        attempt = next(turns, None)
        if attempt is not None:
            return attempt
        chance = self._retries.second_chance(
            failed, remaining, lambda attempt: self._replicas[attempt.model.name].other(asked)
        )
        if chance is None or not _fits(chance.attempt, failed):
            return None
        call.waited += chance.wait
        await asyncio.sleep(chance.wait)
        return chance.attempt

    async def _attempt(self, call: Call, attempt: Attempt, hold: Hold, asked: set[Replica]) -> Answer:
        model = attempt.model
        tried = Tried(model.name, model.upstream.name, clock.now())
        call.tried.append(tried)
        call.usage, call.events = Usage(), 0
        self._retries.budgets[model.upstream.name].earn()
        try:
            await call.lease.enter(model)
            return await self._replicas[model.name].send(call.body, partial(self._call, call, attempt, hold), asked)
        except asyncio.CancelledError:
            tried.cause = "abandoned"
            raise
        except UpstreamFailure as failed:
            failure = _late(call) if failed.cause == "timeout" and failed.status is None else failed
            tried.cause, tried.detail, tried.status = failure.cause, failure.detail, failure.status
            if failure.cause == "unknown_model":
                self._unknown(model)
            raise failure from None

    async def _call(self, call: Call, attempt: Attempt, hold: Hold, door: Door) -> Answer:
        timeouts = call.runtime.gateway.timeouts
        deadline = call.deadline
        if call.body.stream:
            deadline = min(deadline, clock.now() + timeouts.first_event)
        payload = request.body(call, attempt.model, self._model_id(attempt))
        head = request.complete(door.heads[call.endpoint.name], call, attempt, len(payload))
        asked = clock.now()
        try:
            response = await door.client.send(head, payload, timeouts.connect, deadline)
        finally:
            call.waited += clock.now() - asked
        try:
            if not 200 <= response.status < 300:
                said = attempt.model.upstream.redacted(await _body(response, deadline))
                raise classify.refusal(response.status, response.headers, said)
            return await hold(call, attempt, response, deadline)
        except UpstreamFailure as failure:
            response.close(almost_over=failure.status is not None)
            raise classify.embedded(failure) if failure.cause == "embedded" else failure from None
        except BaseException:
            response.close()
            raise


def _late(call: Call) -> UpstreamFailure:
    """A limit of our own has passed: which."""
    limits, over = call.runtime.gateway.timeouts, clock.now() >= call.deadline
    if over or not call.body.stream:
        return UpstreamFailure("timeout", f"no answer within {limits.total:.6g} s (timeouts.total)")
    return UpstreamFailure("timeout", f"no first event within {limits.first_event:.6g} s (timeouts.first_event)")


async def _body(response: Incoming, deadline: float) -> bytes:
    """An error's body; what cannot be read of it soon is left out: the status is known, and others may be asked."""
    deadline = min(deadline, clock.now() + _REFUSAL_SECONDS)
    body = b""
    with suppress(UpstreamFailure):
        while len(body) < _MAX_REFUSAL and (data := await response.read(deadline)):
            body += data
    return body


def _fits(attempt: Attempt, failed: Sequence[Failed]) -> bool:
    """After an overflow only a model with more room helps."""
    if not failed:
        return True
    overflown = [f.attempt.model.context or 0 for f in failed if CAUSES[f.failure.cause].next == "larger"]
    return not overflown or (attempt.model.context or 0) > max(overflown)


def _nobody(call: Call, down: Sequence[Down]) -> GatewayError:
    """Nothing was asked: all that the plan has are engines that are down."""
    text = call.prefix(down[0].model) + "; ".join([*_skipped(call), *map(str, down)])
    return GatewayError("no_healthy_model", text, retry_after=BACK_SOON)


def _skipped(call: Call) -> list[str]:
    """What the plan left out, and why."""
    return [f"{model}: {why}" for model, why in call.plan.skipped] if call.plan is not None else []


def _verdict(call: Call, failed: Sequence[Failed], down: Sequence[Down]) -> GatewayError:
    """The error the caller sees: the last attempt's, with what became of the others, and the soonest time to return."""
    last = call.tried[-1]
    others = [
        f"{t.model} via {t.upstream}: {t.detail}"
        for t in call.tried
        if (t.model, t.detail) != (last.model, last.detail)
    ]
    others = [*_skipped(call), *map(str, down), *others]
    where = f"{last.model} via {last.upstream}"
    if others:
        where = "; ".join(others) + f"; then {where}"
    error = failed[-1].failure.as_error(call.prefix(last.model) + where)
    if error.retry_after is not None:
        error.retry_after = min(f.failure.retry_after for f in failed if f.failure.retry_after is not None)
    return error
