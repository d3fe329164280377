"""Walks the plan: one attempt after the other until one commits. It chooses nothing; the plan did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from gateway import clock
from gateway.call import Answer, Attempt, Call, Incoming, Plan, Tried, Usage
from gateway.errors import CAUSES, GatewayError, UpstreamFailure
from gateway.upstream import classify, request
from gateway.upstream.client import Client

_MAX_REFUSAL = 64 * 1024
"""Bytes of an error body that are read."""

Hold = Callable[[Call, Attempt, Incoming, float], Awaitable[Answer]]
"""The relay's part of an attempt: the answer once it has committed."""


@dataclass(frozen=True, slots=True)
class Door:
    """One target of an upstream, ready to be called: its client, and the fixed head per endpoint."""

    client: Client
    heads: Mapping[str, bytes]


class Walker:
    """The upstream stage of one configuration."""

    def __init__(self, doors: Mapping[str, tuple[Door, ...]], ids: Callable[[Attempt], str]) -> None:
        self._doors = doors
        """Upstream name -> its targets."""
        self._model_id = ids
        """The id to send for an attempt's model (alias lists are resolved elsewhere)."""

    async def open(self, call: Call, plan: Plan, hold: Hold) -> Answer:
        """The first answer that commits. Raises GatewayError once no attempt is left or none may follow."""
        failures: list[UpstreamFailure] = []
        too_small: int | None = None
        """The largest context, in tokens, that has overflowed."""
        for attempt in plan.attempts[: call.runtime.gateway.attempts]:
            context = attempt.model.context or 0
            if too_small is not None and context <= too_small:
                continue
            tried = Tried(attempt.model.name, attempt.model.upstream.name, clock.now())
            call.tried.append(tried)
            call.usage = Usage()
            try:
                answer = await self._attempt(call, attempt, hold)
            except asyncio.CancelledError:
                tried.cause = "abandoned"
                raise
            except UpstreamFailure as failure:
                tried.cause, tried.detail, tried.status = failure.cause, failure.detail, failure.status
                failures.append(failure.with_traceback(None))  # whose frames hold this list
                if CAUSES[failure.cause].next == "larger":
                    too_small = max(too_small or 0, context)
                if CAUSES[failure.cause].next == "no" or clock.now() >= call.deadline:
                    break
            else:
                call.answered = attempt
                return answer
        raise _verdict(call, failures)

    async def _attempt(self, call: Call, attempt: Attempt, hold: Hold) -> Answer:
        """One attempt. Should a target refuse the connection, the upstream's next one is called: nothing was sent."""
        refused: UpstreamFailure | None = None
        for door in sorted(self._doors[attempt.model.upstream.name], key=lambda d: d.client.busy):
            try:
                return await self._call(call, attempt, door, hold)
            except UpstreamFailure as failure:
                if failure.cause != "connect":
                    raise
                refused = failure
        raise refused or UpstreamFailure("connect", "the upstream has no address")

    async def _call(self, call: Call, attempt: Attempt, door: Door, hold: Hold) -> Answer:
        timeouts = call.runtime.gateway.timeouts
        deadline = call.deadline
        if call.body.stream:
            deadline = min(deadline, clock.now() + timeouts.first_event)
        payload = request.body(call, attempt.model, self._model_id(attempt))
        head = request.complete(door.heads[call.endpoint.name], call, len(payload))
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


async def _body(response: Incoming, deadline: float) -> bytes:
    """An error's body; what cannot be read of it is left out."""
    body = b""
    try:
        while len(body) < _MAX_REFUSAL and (data := await response.read(deadline)):
            body += data
    except UpstreamFailure:
        return b""
    return body


def _verdict(call: Call, failures: list[UpstreamFailure]) -> GatewayError:
    """The error the caller sees: the last attempt's, with what became of the earlier ones."""
    *earlier, last = call.tried
    where = f"{last.model} via {last.upstream}"
    if earlier:
        where = "; ".join(f"{t.model} via {t.upstream}: {t.detail}" for t in earlier) + f"; then {where}"
    if call.plan is not None and call.plan.route != last.model:
        where = f"route {call.plan.route}: {where}"
    return failures[-1].as_error(where)
