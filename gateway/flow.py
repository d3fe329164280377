"""One call from start to finish. Each line of `_answer` is a package of this folder; read on there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from gateway import clock
from gateway.body import Body
from gateway.call import Answer, Call, Caller, Endpoint, Exchange, Lease, Plan, Trace
from gateway.config.runtime import Runtime
from gateway.errors import GatewayError

LARGE = 1 << 20
"""Bytes of a request body that are parsed beside the event loop."""


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of one configuration; a reload swaps them all by one reference (`wiring.py` makes them)."""

    runtime: Runtime
    identify: Callable[[Mapping[bytes, bytes]], Caller]
    parse: Callable[[bytes, Endpoint], Body]
    recall: Callable[[Call], Awaitable[None]] | None
    """What other processes know of the call's conversation; None: there are none."""
    plan: Callable[[Call], Plan]
    admit: Callable[[Call], Awaitable[Lease]]
    """Limits and budget; takes models without room out of the plan."""
    attempt: Callable[[Call, Plan], Awaitable[Answer]]
    deliver: Callable[[Call, Answer, Exchange, Callable[[], None]], Awaitable[None]]
    account: Callable[[Call], None]
    """Complete the record: usage where none was reported, and the cost."""
    finish: Callable[[Call], None]
    """Metrics, ledger and the log line, from the finished record."""
    report: Callable[[Call, BaseException], None]
    """Tell the operator of a fault of our own."""
    trace: Callable[[Call], Trace] | None = None
    """Begins a call's trace; None: nobody collects them."""


class Flow:
    """Runs calls through the stages of the current configuration."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages

    async def run(self, exchange: Exchange) -> None:
        """Answer one request, whatever happens. A caller that leaves cancels everything that still runs for it."""
        stages = self.stages  # a reload does not touch calls in flight
        call = Call(
            exchange.request_id, exchange.endpoint, exchange.headers, exchange.peer, stages.runtime, clock.now()
        )
        exchange.watch(call)
        if stages.trace is not None:
            call.trace = stages.trace(call)
        try:
            await self._serve(stages, call, exchange)
        except asyncio.CancelledError:
            if exchange.left:
                call.outcome, call.status = "client_closed", 499
            else:  # the server has waited long enough for its calls to end
                stopped = GatewayError("shutting_down", "The gateway is shutting down.", retry_after=1)
                await self._fail(stages, call, exchange, stopped)
        finally:
            exchange.release()
            _close(stages, call)

    async def _serve(self, stages: Stages, call: Call, exchange: Exchange) -> None:
        try:
            await self._answer(stages, call, exchange)
        except GatewayError as refusal:
            await self._fail(stages, call, exchange, refusal)
        except Exception as fault:  # the boundary: a fault of ours ends this call only
            stages.report(call, fault)
            error = GatewayError("internal_error", "The gateway failed on this request; its log knows more.")
            await self._fail(stages, call, exchange, error)

    async def _fail(self, stages: Stages, call: Call, exchange: Exchange, error: GatewayError) -> None:
        error.__traceback__ = error.__context__ = None  # their frames hold the call, and the call this error
        call.error, call.outcome = error, error.code
        call.status = call.status or error.status
        _close(stages, call)
        await exchange.fail(call, error)

    async def _answer(self, stages: Stages, call: Call, exchange: Exchange) -> None:
        call.caller = stages.identify(call.headers)
        raw = await exchange.read(call.runtime.gateway.max_body_bytes)
        if len(raw) < LARGE:
            call.body = stages.parse(raw, call.endpoint)
        else:  # milliseconds, in which others' events go on
            call.body = await asyncio.to_thread(stages.parse, raw, call.endpoint)
        call.read_at = clock.now()
        if stages.recall is not None:
            await stages.recall(call)
        call.plan = stages.plan(call)
        call.planned_at = clock.now()
        call.lease = await stages.admit(call)
        call.admitted_at = clock.now()
        answer = await stages.attempt(call, call.plan)
        call.committed_at = clock.now()
        try:
            await stages.deliver(call, answer, exchange, lambda: _close(stages, call))
        finally:
            answer.close()


def _close(stages: Stages, call: Call) -> None:
    """Settle, count and log a call: once, when its outcome is known, before or with the last bytes."""
    if call.closed:
        return
    call.closed = True
    for book in (stages.account, call.lease.settle, stages.finish):
        try:
            book(call)
        except Exception as fault:  # the boundary: a book that fails costs neither the others nor a caller its answer
            stages.report(call, fault)
