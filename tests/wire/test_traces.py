"""Traces over real sockets: a gateway process, a collector that is sent OTLP, an upstream that is told its span."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.fakes import Reply, Upstream, error
from tests.harness import Gateway, config_for

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


def spans(collector: Upstream) -> list[Span]:
    found: list[Span] = []
    for request in collector.requests:
        body = gzip.decompress(request.body) if request.header("content-encoding") == "gzip" else request.body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            found += (span for scope in resource.scope_spans for span in scope.spans)
    return found


def value(span: Span, name: str) -> str:
    return next((one.value.string_value for one in span.attributes if one.key == name), "")


@pytest.mark.seconds
async def test_a_calls_trace_reaches_the_collector(upstream: Upstream, second: Upstream) -> None:
    upstream.script(error(500, "no"), times=9)
    async with Upstream(default=Reply(b"")) as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}"}
        async with Gateway(config_for(upstream, second), env) as gw:
            answer = await gw.chat("prompt-mark", headers=CALLER, stream=True)
            assert answer.header("x-turnout-model") == "m1"
        told = await asyncio.to_thread(spans, collector)
    by_name = {span.name: span for span in told}
    attempts = {value(span, "turnout.model"): span for span in told if span.kind == Span.SPAN_KIND_CLIENT}
    assert set(attempts) == {"m0", "m1"}
    assert [value(attempts[name], "gen_ai.response.model") for name in ("m0", "m1")] == ["", "fake"]
    assert {"chat auto", "read", "plan", "admit", "attempt", "deliver", "chat fake"} <= set(by_name)
    assert {span.trace_id.hex() for span in told} == {TRACE}
    sent = (await second.call()).header("traceparent")
    assert sent == f"00-{TRACE}-{attempts['m1'].span_id.hex()}-01"
    assert all(b"prompt-mark" not in request.body for request in collector.requests)


@pytest.mark.seconds
async def test_a_collector_that_is_down_harms_nothing(upstream: Upstream) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    async with Gateway(config_for(upstream), env) as gw:
        for _ in range(3):
            assert (await gw.chat()).status == 200


@pytest.mark.seconds
async def test_without_a_collector_the_callers_context_passes_through(upstream: Upstream) -> None:
    async with Gateway(config_for(upstream)) as gw:
        await gw.chat(headers=CALLER)
    assert (await upstream.call()).header("traceparent") == CALLER["traceparent"]
