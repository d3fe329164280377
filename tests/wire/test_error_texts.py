"""What a caller is told when nothing answers: route, model, upstream, its status and the cause; never an address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Authority, Close, Hang, Reply, Sse, Upstream, chunk, refusing_port, silent_port, to_json
from tests.fakes.steps import Step
from tests.harness import config_for
from tests.wire.calls import errors_of
from tests.wire.checks import openai_error

SHORT = {"timeouts": {"connect": 0.2, "first_event": 0.3, "idle": 0.3, "total": 0.6}, "attempts": 1}
STREAM: dict[str, Any] = {"stream": True}
ROLE = chunk("", "assistant")
WHERE = "route auto: m0 via u0: "


def refusal(status: int, code: str | None = None) -> Reply:
    return Reply(to_json({"error": {"message": "secret words", "type": None, "param": None, "code": code}}), status)


REFUSED: dict[str, tuple[Step, dict[str, Any], int, str]] = {
    "key": (refusal(401, "invalid_api_key"), {}, 502, "HTTP 401 (invalid_api_key): it refused the gateway's own key"),
    "credit": (refusal(402), {}, 502, "HTTP 402: the gateway's account there has no credit left"),
    "page": (Reply(b"<html>nginx at 10.0.0.1</html>", 502), {}, 502, "HTTP 502: a failure of its own"),
    "busy": (refusal(503), {}, 503, "HTTP 503: it is loading or has no room"),
    "slow itself": (refusal(504), {}, 504, "HTTP 504: it did not answer in time"),
    "no answer": (Hang(), {}, 504, "no answer within 0.6 s (timeouts.total)"),
    "no head": (Hang(), STREAM, 504, "no first event within 0.3 s (timeouts.first_event)"),
    "no event": (Sse([ROLE, Hang()]), STREAM, 504, "no first event within 0.3 s (timeouts.first_event)"),
    "closed": (Close(), {}, 502, "the connection broke"),
    "cut": (Reply(b"{", headers={"content-length": "9"}, keep=False), {}, 502, "the connection broke in the answer"),
}


@pytest.mark.parametrize(("step", "fields", "status", "words"), REFUSED.values(), ids=REFUSED.keys())
async def test_before_the_commit(
    upstream: Upstream, gateway: StartGateway, step: Step, fields: dict[str, Any], status: int, words: str
) -> None:
    upstream.script(step, times=None)
    gw = await gateway(config_for(upstream, gateway=SHORT))
    answer = await gw.chat(**fields)
    told = openai_error(answer, status)
    assert told["message"] == WHERE + words
    assert (answer.header("x-turnout-model"), answer.header("x-turnout-upstream")) == ("m0", "u0")
    (line,) = gw.calls()
    assert line["failed"] == [f"m0: {line['failed'][0].split(': ')[1]}: {words}"]


AFTER: dict[str, tuple[list[bytes | Step], str, str]] = {
    "cut": ([Close()], "broken_off", "the connection broke in the answer"),
    "silence": ([Hang()], "idle", "no event for 0.3 s (timeouts.idle)"),
}


@pytest.mark.parametrize(("rest", "cause", "words"), AFTER.values(), ids=AFTER.keys())
async def test_after_the_commit(
    upstream: Upstream, gateway: StartGateway, rest: list[bytes | Step], cause: str, words: str
) -> None:
    upstream.script(Sse([chunk("Hi"), *rest]))
    gw = await gateway(config_for(upstream, gateway=SHORT))
    (error,) = errors_of((await gw.chat(**STREAM)).body)
    assert error["message"] == WHERE + words
    (line,) = gw.calls()
    assert line["failed"] == [f"m0: {cause}: {words}"]
    metrics = await gw.metrics()
    assert metrics.total("turnout_attempts_total", upstream="u0", result=cause) == 1


@asynccontextmanager
async def untrusted() -> AsyncIterator[str]:
    async with Upstream(tls=Authority().server()) as up:
        yield up.url


@asynccontextmanager
async def address(make: Callable[[], Any]) -> AsyncIterator[str]:
    with make() as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("served", "words"),
    [
        (lambda: address(refusing_port), "connection refused"),
        (lambda: address(silent_port), "no connection within 0.2 s"),
        (untrusted, "TLS certificate not trusted ("),
    ],
    ids=["refused", "silent", "TLS"],
)
async def test_where_nothing_connects(
    upstream: Upstream, gateway: StartGateway, served: Callable[[], Any], words: str
) -> None:
    async with served() as url:
        gw = await gateway(config_for(upstream, upstreams={"u0": {"base_url": url}}, gateway=SHORT))
        told = openai_error(await gw.chat(), 502, "upstream_unavailable")
    assert told["message"].startswith(WHERE + words)
    assert "127.0.0.1" not in told["message"]


async def test_every_model_that_was_tried_is_named(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    upstream.script(refusal(500), times=None)
    second.script(Hang(), times=None)
    gw = await gateway(config_for(upstream, second, gateway=SHORT | {"attempts": 2}))
    told = openai_error(await gw.chat(**STREAM), 504)
    first, then = "m0 via u0: HTTP 500: a failure of its own", "then m1 via u1: no first event within 0.3 s"
    assert told["message"].startswith(f"route auto: {first}; {then}")


async def test_a_model_that_the_caller_named_is_its_own_route(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(refusal(500), times=None)
    gw = await gateway(config_for(upstream, gateway=SHORT))
    told = openai_error(await gw.chat(model="m0"), 502)
    assert told["message"] == "m0 via u0: HTTP 500: a failure of its own"
