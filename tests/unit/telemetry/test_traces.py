"""Spans of calls: what they are called, how they hang together, what they tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.call import Attempt, Call, Plan, Split, Tried, Usage
from gateway.errors import GatewayError
from gateway.telemetry.traces import Traces, open_traces
from tests.unit.building import a_call, a_model, an_upstream

M0, M1 = a_model("m0", ids=("glm",)), a_model("m1", an_upstream("u1"), ids=("kimi-k2.5", "kimi"))
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def kept() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(kept: InMemorySpanExporter) -> Traces:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return Traces(provider)


def traced(traces: Traces, headers: Mapping[bytes, bytes] | None = None) -> Call:
    """A call that `m0` failed and `m1` answered."""
    call = a_call(b'{"model":"auto","messages":[{"role":"user","content":"prompt-mark"}]}', headers=headers)
    call.trace = traces.begin(call)
    call.read_at, call.planned_at, call.admitted_at, call.committed_at = 100.1, 100.2, 100.3, 104.0
    call.plan = Plan("auto", "code", (Attempt(M0, ""), Attempt(M1, "")), task="debug", split=Split("e", "m1", 0.5))
    for model, at, cause in ((M0, 100.3, "timeout"), (M1, 101.0, "")):
        tried = Tried(model.name, model.upstream.name, at, cause)
        call.tried.append(tried)
        assert call.trace.attempt(Attempt(model, "rule code"), tried).startswith(b"00-")
    call.answered, call.outcome, call.status = Attempt(M1, ""), "ok", 200
    call.usage, call.first_token = Usage(prompt=30, completion=11, cached=20), 103.5
    return call


def ended(kept: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in kept.get_finished_spans()}


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return round((span.end_time - span.start_time) / 1e9, 3)


def told(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


def test_a_call_its_stages_and_its_attempts(traces: Traces, kept: InMemorySpanExporter) -> None:
    call = traced(traces)
    assert call.trace is not None
    call.trace.end(call, 107.0)
    spans = ended(kept)
    names = ("chat auto", "read", "plan", "admit", "attempt", "deliver", "chat glm", "chat kimi-k2.5")
    assert set(spans) == set(names)
    assert [seconds(spans[name]) for name in names] == [7.0, 0.1, 0.1, 0.1, 3.7, 3.0, 0.7, 3.0]
    root = spans["chat auto"]
    assert root.context is not None
    assert root.parent is None
    assert {s.parent.span_id for s in spans.values() if s.parent} == {root.context.span_id}
    assert [spans[name].kind.name for name in ("chat auto", "chat kimi-k2.5", "plan")] == [
        "SERVER",
        "CLIENT",
        "INTERNAL",
    ]


def test_what_they_tell(traces: Traces, kept: InMemorySpanExporter) -> None:
    call = traced(traces)
    assert call.trace is not None
    call.trace.end(call, 107.0)
    spans = ended(kept)
    whole = told(spans["chat auto"])
    assert whole["gen_ai.operation.name"] == "chat"
    assert (whole["gen_ai.request.model"], whole["gen_ai.response.model"]) == ("auto", "kimi-k2.5")
    assert (whole["gen_ai.usage.input_tokens"], whole["gen_ai.usage.output_tokens"]) == (30, 11)
    assert (whole["turnout.rule"], whole["turnout.task"], whole["turnout.arm"]) == ("code", "debug", "m1")
    assert whole["turnout.time_to_first_token"] == 3.5
    assert (whole["turnout.model"], whole["gen_ai.provider.name"]) == ("m1", "u1")
    failed, answered = spans["chat glm"], spans["chat kimi-k2.5"]
    assert (told(failed)["error.type"], failed.status.is_ok) == ("timeout", False)
    assert (told(answered)["gen_ai.request.model"], told(answered)["gen_ai.provider.name"]) == ("kimi-k2.5", "u1")
    assert (told(answered)["gen_ai.response.model"], told(answered)["turnout.model"]) == ("kimi-k2.5", "m1")
    tokens = [told(answered)[f"gen_ai.usage.{kind}"] for kind in ("input_tokens", "output_tokens")]
    assert (tokens, told(answered)["gen_ai.usage.cache_read.input_tokens"]) == ([30, 11], 20)
    assert not [name for name in told(failed) if name.startswith(("gen_ai.usage", "gen_ai.response"))]
    assert "prompt-mark" not in str([s.to_json() for s in spans.values()])


def test_the_callers_trace_goes_on(traces: Traces, kept: InMemorySpanExporter) -> None:
    call = traced(traces, {b"traceparent": PARENT})
    assert call.trace is not None
    sent = call.trace.attempt(Attempt(M1, ""), Tried("m1", "u1", 102.0))
    assert sent.startswith(b"00-0af7651916cd43dd8448eb211c80319c-")
    assert sent != PARENT
    call.trace.end(call, 107.0)
    parent = ended(kept)["chat auto"].parent
    assert parent is not None
    assert f"{parent.span_id:016x}" == "b7ad6b7169203331"


@pytest.mark.parametrize("wrong", [b"", b"garbage", b"00-0-0-00", b"\xff" * 300])
def test_a_traceparent_without_sense_is_none(traces: Traces, kept: InMemorySpanExporter, wrong: bytes) -> None:
    call = traced(traces, {b"traceparent": wrong})
    assert call.trace is not None
    call.trace.end(call, 107.0)
    assert ended(kept)["chat auto"].parent is None


def test_a_call_that_got_nowhere(traces: Traces, kept: InMemorySpanExporter) -> None:
    call = a_call()
    call.trace = traces.begin(call)
    call.read_at = 100.5
    call.error = GatewayError("model_not_found", "no such model")
    call.outcome, call.status = "model_not_found", 404
    call.trace.end(call, 101.0)
    spans = ended(kept)
    assert set(spans) == {"chat", "read", "plan"}
    assert (told(spans["chat"])["error.type"], spans["chat"].status.is_ok) == ("model_not_found", False)


def test_spans_are_named_by_the_model_that_they_ask_for(traces: Traces, kept: InMemorySpanExporter) -> None:
    """By `{gen_ai.operation.name} {gen_ai.request.model}`, as the conventions have it; stages are none of these."""
    call = traced(traces)
    assert call.trace is not None
    call.trace.end(call, 107.0)
    for span in ended(kept).values():
        if "gen_ai.operation.name" in told(span):
            assert span.name == f"{told(span)['gen_ai.operation.name']} {told(span)['gen_ai.request.model']}"
        else:
            assert span.kind.name == "INTERNAL"


@pytest.mark.parametrize(
    "variables",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}],
)
def test_they_are_off_unless_a_collector_is_named(variables: dict[str, str]) -> None:
    assert open_traces(variables) is None
