"""Traces by OpenTelemetry, off unless the environment names a collector: one span per call, one for each of its stages
and attempts, named and described by the conventions for generative AI (`gen_ai.*`).

The stages' spans are made when the call is over, from the times in its record; an attempt's when it begins, since its
upstream gets the span's id. Prompt and answer texts are in none of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gateway import __version__, clock
from gateway.call import Attempt, Call, Tried

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

_OPERATIONS: Mapping[str, str] = MappingProxyType({"completions": "text_completion"})
"""Endpoints whose operation has another name."""
_CONTEXT = (b"traceparent", b"tracestate")
STOP_SECONDS = 2


class Traces:
    """Makes the spans of one process and sends them to a collector from a thread of the SDK's own."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, StatusCode

        self._provider = provider
        self._tracer = provider.get_tracer("turnout", __version__)
        self._extract, self._kinds, self._error = extract, SpanKind, StatusCode.ERROR

    def begin(self, call: Call) -> CallTrace:
        """The trace of a call, as part of its caller's where that sent a `traceparent`."""
        carrier = {n.decode(): call.headers[n].decode("latin-1") for n in _CONTEXT if n in call.headers}
        operation = _OPERATIONS.get(call.endpoint.name, call.endpoint.name)
        shift = time.time_ns() - round(clock.now() * 1e9)
        return CallTrace(self, operation, self._extract(carrier) if carrier else None, call.arrived, shift)

    def span(self, name: str, kind: str, parent: Context | None, start: int) -> Span:
        """A span that begins at `start`, in nanoseconds since 1970."""
        return self._tracer.start_span(name, context=parent, kind=self._kinds[kind], start_time=start)

    def failed(self, span: Span, cause: str, detail: str = "") -> None:
        """Mark a span as failed."""
        span.set_attribute("error.type", cause)
        span.set_status(self._error, detail or None)

    def close(self) -> None:
        """Send what is left; waits for the collector, though not for long."""
        self._provider.force_flush(STOP_SECONDS * 1000)
        self._provider.shutdown()


class CallTrace:
    """See `call.Trace`."""

    def __init__(self, traces: Traces, operation: str, parent: Context | None, arrived: float, shift: int) -> None:
        """`shift`: nanoseconds from the gateway's clock to 1970."""
        from opentelemetry.trace import set_span_in_context

        self._traces, self._operation, self._shift = traces, operation, shift
        self._span = traces.span(operation, "SERVER", parent, self._at(arrived))
        self._inside = set_span_in_context(self._span)
        self._attempts: list[tuple[Tried, Span]] = []

    def _at(self, moment: float) -> int:
        return round(moment * 1e9) + self._shift

    def attempt(self, attempt: Attempt, tried: Tried) -> bytes:
        """See `call.Trace`."""
        asked = attempt.model.ids[0]
        span = self._traces.span(f"{self._operation} {asked}", "CLIENT", self._inside, self._at(tried.started))
        span.set_attributes(
            {
                "gen_ai.operation.name": self._operation,
                "gen_ai.provider.name": tried.upstream,
                "gen_ai.request.model": asked,
                "turnout.model": tried.model,
                "turnout.reason": attempt.reason,
            }
        )
        self._attempts.append((tried, span))
        context = span.get_span_context()
        return b"00-%032x-%016x-%02x" % (context.trace_id, context.span_id, context.trace_flags)

    def end(self, call: Call, now: float) -> None:
        """See `call.Trace`."""
        if self._span.is_recording():
            self._describe(call)
            self._stages(call, now)
        if call.answered is not None and self._attempts:
            self._attempts[-1][1].set_attributes(_answer(call, call.answered))
        ends = [self._at(tried.started) for tried, _ in self._attempts[1:]]
        ends.append(self._at(call.committed_at or now))
        for (tried, span), end in zip(self._attempts, ends, strict=False):
            if tried.cause:
                self._traces.failed(span, tried.cause, tried.detail)
            span.end(end)
        self._span.end(self._at(now))

    def _describe(self, call: Call) -> None:
        plan, answered = call.plan, call.answered
        told: dict[str, Any] = {
            "gen_ai.operation.name": self._operation,
            "gen_ai.request.model": call.body.model,
            "http.response.status_code": call.status,
            "url.path": f"/v1{call.endpoint.path}",
            "turnout.request_id": call.id,
            "turnout.model": answered.model.name if answered else None,
            "turnout.key": call.caller.key,
            "turnout.team": call.caller.team,
            "turnout.outcome": call.outcome,
            "turnout.cost_usd": float(call.cost),
            "turnout.time_to_first_token": call.first_token - call.arrived if call.first_token else None,
        }
        if answered is not None:
            told |= {"gen_ai.provider.name": answered.model.upstream.name, **_answer(call, answered)}
        if plan is not None:  # the name is known, so there are only so many
            self._span.update_name(f"{self._operation} {call.body.model}")
            told |= {"turnout.route": plan.route, "turnout.rule": plan.rule, "turnout.task": plan.task}
            if plan.split is not None:
                told |= {"turnout.experiment": plan.split.experiment, "turnout.arm": plan.split.arm}
        self._span.set_attributes({name: value for name, value in told.items() if value is not None})
        if call.outcome != "ok":
            self._traces.failed(self._span, call.outcome, call.error.message if call.error else "")

    def _stages(self, call: Call, now: float) -> None:
        """Where a stage was not left, the call ended in it."""
        marks = (
            ("read", call.read_at),
            ("plan", call.planned_at),
            ("admit", call.admitted_at),
            ("attempt", call.committed_at),
            ("deliver", now),
        )
        start = call.arrived
        for name, mark in marks:
            span = self._traces.span(name, "INTERNAL", self._inside, self._at(start))
            span.end(self._at(mark or now))
            if not mark:
                return
            start = mark


def _answer(call: Call, answered: Attempt) -> dict[str, Any]:
    """The conventions' attributes of an answer."""
    return {
        "gen_ai.response.model": answered.model.ids[0],
        "gen_ai.usage.input_tokens": call.usage.prompt,
        "gen_ai.usage.output_tokens": call.usage.completion,
        "gen_ai.usage.cache_read.input_tokens": call.usage.cached,
    }


def open_traces(variables: Mapping[str, str]) -> Traces | None:
    """Traces to the collector that `variables` names (OTEL_EXPORTER_OTLP_ENDPOINT, or ..._TRACES_ENDPOINT); None: none.

    All else is the SDK's own: OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and so on.
    """
    base, whole = variables.get("OTEL_EXPORTER_OTLP_ENDPOINT"), variables.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if variables.get("OTEL_SDK_DISABLED", "").lower() == "true" or not (base or whole):
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    endpoint = whole or f"{(base or '').rstrip('/')}/v1/traces"
    service = {"service.name": variables.get("OTEL_SERVICE_NAME", "turnout"), "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(service))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return Traces(provider)
