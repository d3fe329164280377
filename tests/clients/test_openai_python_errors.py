"""Every error class of the official Python SDK: a gateway that refuses, an upstream that fails; when it retries."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from gateway.call import Call, Lease
from gateway.errors import GatewayError
from tests.clients.asking import chunks_of, says, text_of, until_left
from tests.clients.conftest import Connect, ConnectSync
from tests.conftest import StartGateway
from tests.fakes import DONE, Close, Hang, Reply, Reset, Sse, Step, Upstream, chunk, error, event, refusing_port
from tests.harness import LocalGateway, config_for

KINDS: dict[str, dict[str, Any]] = {"plain": {}, "streamed": {"stream": True}}
both_kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)

KEYS = {"keys": [{"name": "ci", "key": "sk-ci", "models": ["auto"]}]}
OVERFLOW = "This model's maximum context length is 2048 tokens. However, you requested 4000 tokens."

# What is sent besides a plain chat call -> class, status, code.
REFUSED: dict[str, tuple[dict[str, Any], type[openai.APIStatusError], int, str]] = {
    "a wrong key": (
        {"extra_headers": {"authorization": "Bearer no"}},
        openai.AuthenticationError,
        401,
        "invalid_api_key",
    ),
    "another's model": ({"model": "m0"}, openai.PermissionDeniedError, 403, "model_not_allowed"),
    "an unknown model": ({"model": "gpt-9"}, openai.NotFoundError, 404, "model_not_found"),
    "a wrong type": ({"extra_body": {"messages": "hi"}}, openai.BadRequestError, 400, "invalid_request"),
    "a large body": ({"extra_body": {"x": "x" * (1 << 20)}}, openai.APIStatusError, 413, "body_too_large"),
    "no JSON": (
        {"extra_headers": {"content-type": "text/plain"}},
        openai.APIStatusError,
        415,
        "unsupported_media_type",
    ),
}

# What the upstream does -> class, status, code.
FAILED: dict[str, tuple[Step, type[openai.APIStatusError], int, str]] = {
    "bad parameter": (error(400, "no", code="bad_value", param="top_p"), openai.BadRequestError, 400, "bad_value"),
    "overflow": (error(400, OVERFLOW, code=400), openai.BadRequestError, 400, "context_length_exceeded"),
    "conflict": (error(409, code="busy"), openai.ConflictError, 409, "busy"),
    "unprocessable": (error(422, code="odd"), openai.UnprocessableEntityError, 422, "odd"),
    "rate limit": (error(429, code="rate_limit_exceeded"), openai.RateLimitError, 429, "rate_limit_exceeded"),
    "its key": (error(401, code="invalid_api_key"), openai.InternalServerError, 502, "upstream_auth"),
    "its access": (error(403), openai.InternalServerError, 502, "upstream_auth"),
    "its credit": (error(429, code="insufficient_quota"), openai.InternalServerError, 502, "upstream_quota"),
    "its fault": (error(500), openai.InternalServerError, 502, "upstream_unavailable"),
    "its load": (error(503), openai.InternalServerError, 503, "upstream_overloaded"),
    "a page": (
        Reply(b"<html>", 200, {"content-type": "text/html"}),
        openai.InternalServerError,
        502,
        "upstream_bad_response",
    ),
    "a cut": (Reset(), openai.InternalServerError, 502, "upstream_bad_response"),
    "silence": (Hang(), openai.InternalServerError, 504, "upstream_timeout"),
}


def assert_told(refused: openai.APIStatusError, kind: type[openai.APIStatusError], status: int, code: str) -> None:
    """The SDK found everything that it looks for."""
    assert type(refused) is kind
    assert (refused.status_code, refused.code) == (status, code)
    assert refused.request_id
    assert refused.request_id == refused.response.headers["x-request-id"]
    assert refused.type
    assert isinstance(refused.body, dict)
    assert refused.body["message"]
    assert refused.message.endswith(refused.body["message"])


@both_kinds
@pytest.mark.parametrize(("fields", "kind_of", "status", "code"), REFUSED.values(), ids=REFUSED)
async def test_what_the_gateway_refuses(
    upstream: Upstream,
    gateway: StartGateway,
    sdk: Connect,
    kind: dict[str, Any],
    fields: dict[str, Any],
    kind_of: type[openai.APIStatusError],
    status: int,
    code: str,
) -> None:
    client = sdk(await gateway(config_for(upstream, gateway={"max_body_mb": 1}, **KEYS)), api_key="sk-ci")
    with pytest.raises(openai.APIStatusError) as refused:
        await client.chat.completions.create(**{"model": "auto", "messages": says()} | kind | fields)
    assert_told(refused.value, kind_of, status, code)
    assert upstream.calls == []
    assert (await client.chat.completions.create(model="auto", messages=says())).choices


@both_kinds
@pytest.mark.parametrize(("step", "kind_of", "status", "code"), FAILED.values(), ids=FAILED)
async def test_what_an_upstream_causes(
    upstream: Upstream,
    gateway: StartGateway,
    sdk: Connect,
    kind: dict[str, Any],
    step: Step,
    kind_of: type[openai.APIStatusError],
    status: int,
    code: str,
) -> None:
    upstream.script(step)
    client = sdk(
        await gateway(config_for(upstream, gateway={"attempts": 1, "timeouts": {"first_event": 0.2, "total": 0.3}}))
    )
    with pytest.raises(openai.APIStatusError) as refused:
        await client.chat.completions.create(model="auto", messages=says(), **kind)
    assert_told(refused.value, kind_of, status, code)
    assert upstream.count() == 1


async def test_errors_of_the_model_list(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    gw = await gateway(config_for(upstream, **KEYS))
    with pytest.raises(openai.AuthenticationError) as refused:
        await sdk(gw, api_key="sk-wrong").models.list()
    assert_told(refused.value, openai.AuthenticationError, 401, "invalid_api_key")
    with pytest.raises(openai.NotFoundError) as unknown:
        await sdk(gw, api_key="sk-ci").models.retrieve("m0")
    assert_told(unknown.value, openai.NotFoundError, 404, "model_not_found")


async def test_no_gateway_at_all(gateway: StartGateway, sdk: Connect, upstream: Upstream) -> None:
    with refusing_port() as port:
        client = sdk(await gateway(upstream), base_url=f"http://127.0.0.1:{port}/v1")
        with pytest.raises(openai.APIConnectionError):
            await client.models.list()


BROKEN: dict[str, tuple[list[bytes | Step], str]] = {
    "an error event": ([event({"error": {"message": "it broke", "type": "server_error"}})], "it broke"),
    "the connection": ([Reset()], "m0 via u0"),
    "an early end": ([Close()], "m0 via u0"),
    "half an event": ([chunk("lo")[:20], Close()], "m0 via u0"),
}


@pytest.mark.parametrize(("end", "words"), BROKEN.values(), ids=BROKEN)
async def test_a_stream_that_breaks(
    upstream: Upstream, second: Upstream, gateway: StartGateway, sdk: Connect, end: list[bytes | Step], words: str
) -> None:
    """What came before is delivered, then the SDK raises; nobody takes over, and the client is good for more."""
    upstream.script(Sse([chunk("", "assistant"), chunk("Hel"), *end]))
    client = sdk(await gateway(config_for(upstream, second)))
    stream = await client.chat.completions.create(model="auto", messages=says(), stream=True)
    seen: list[ChatCompletionChunk] = []
    with pytest.raises(openai.APIError, match=words) as broke:
        await chunks_of(stream, seen)
    assert text_of(seen) == "Hel"
    assert type(broke.value) is openai.APIError
    assert second.calls == []
    assert (await client.chat.completions.create(model="m1", messages=says())).choices


async def test_a_stream_that_falls_silent(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    upstream.script(Sse([chunk("Hel"), Hang()]))
    client = sdk(await gateway(config_for(upstream, gateway={"timeouts": {"idle": 0.2}})))
    stream = await client.chat.completions.create(model="auto", messages=says(), stream=True)
    with pytest.raises(openai.APIError) as broke:
        await chunks_of(stream)
    assert broke.value.code == "upstream_timeout"


@pytest.mark.seconds
@both_kinds
async def test_a_client_that_loses_patience(
    upstream: Upstream, gateway: StartGateway, sdk: Connect, kind: dict[str, Any]
) -> None:
    """Its own timeout ends the call upstream as well; a retry is a new call."""
    upstream.script(Hang())
    gw = await gateway(upstream)
    client = sdk(gw, timeout=1.0)
    with pytest.raises(openai.APITimeoutError):
        await client.chat.completions.create(model="auto", messages=says(), **kind)
    await until_left(upstream)
    upstream.script(Hang())
    again = client.with_options(max_retries=1)
    assert await again.chat.completions.create(model="auto", messages=says(), **kind)
    assert upstream.count() == 3


@pytest.mark.seconds
async def test_a_timeout_between_events(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    upstream.script(Sse([chunk("Hel"), Hang()]))
    client = sdk(await gateway(upstream), timeout=1.0)
    stream = await client.chat.completions.create(model="auto", messages=says(), stream=True)
    with pytest.raises(openai.APITimeoutError):
        await chunks_of(stream)
    await until_left(upstream)


def waits(records: list[logging.LogRecord]) -> list[float]:
    """The seconds that the SDK decided to wait before each retry, as it logs them."""
    return [record.args[0] for record in records if record.msg.startswith("Retrying request in")]  # type: ignore[index,misc]


# An upstream's refusal -> seconds that the SDK waits. (The gateway has one attempt only: it would wait itself.)
WAITS: dict[str, tuple[Step, float]] = {
    "429, milliseconds": (error(429, headers={"retry-after-ms": "30"}), 0.03),
    "429, both": (error(429, headers={"retry-after": "9", "retry-after-ms": "40"}), 0.04),
    "503, milliseconds": (error(503, headers={"retry-after-ms": "50"}), 0.05),
    "429, a fraction of a second": (error(429, headers={"retry-after": "0.06"}), 0.06),
    "429, nothing said": (error(429), 1.0),
}


@pytest.mark.parametrize(("step", "seconds"), WAITS.values(), ids=WAITS)
@pytest.mark.seconds
async def test_a_retry_waits_as_it_is_told(
    upstream: Upstream,
    gateway: StartGateway,
    sdk: Connect,
    caplog: pytest.LogCaptureFixture,
    step: Step,
    seconds: float,
) -> None:
    caplog.set_level(logging.INFO, "openai")
    upstream.script(step)
    client = sdk(await gateway(config_for(upstream, gateway={"attempts": 1})), max_retries=2)
    answered = await client.chat.completions.create(model="auto", messages=says())
    assert answered.choices[0].message.content == "hello there"
    assert waits(caplog.records) == [seconds]
    assert upstream.count() == 2


async def test_a_retry_of_a_stream(
    upstream: Upstream, gateway: StartGateway, sync_sdk: ConnectSync, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "openai")
    upstream.script(error(429, headers={"retry-after-ms": "20"}), times=2)
    client = sync_sdk(await gateway(config_for(upstream, gateway={"attempts": 1})), max_retries=2)

    def use() -> str:
        with client.chat.completions.create(model="auto", messages=says(), stream=True) as stream:
            return "".join(piece.choices[0].delta.content or "" for piece in stream)

    assert await asyncio.to_thread(use) == "hello there"
    assert waits(caplog.records) == [0.02, 0.02]


async def test_no_retry_where_the_wait_is_long(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    upstream.script(error(429, headers={"retry-after": "3600"}))
    client = sdk(await gateway(upstream), max_retries=2)
    with pytest.raises(openai.RateLimitError) as refused:
        await client.chat.completions.create(model="auto", messages=says())
    assert refused.value.response.headers["retry-after"] == "3600"
    assert upstream.count() == 1


def refuse_all(gw: LocalGateway, code: str, retry_after: float | None = None) -> list[str]:
    """Give the gateway another limits stage, one that refuses; returns the list of calls that it saw."""
    seen: list[str] = []

    async def admit(call: Call) -> Lease:
        seen.append(call.id)
        raise GatewayError(code, "Nothing is left.", retry_after=retry_after)

    flow = gw.app.gateway.flow
    flow.stages = dataclasses.replace(flow.stages, admit=admit)
    return seen


async def test_a_spent_budget_is_not_tried_again(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    """`x-should-retry: false` outweighs the 429."""
    gw = await gateway(upstream)
    seen = refuse_all(gw, "insufficient_quota")
    with pytest.raises(openai.RateLimitError) as refused:
        await sdk(gw, max_retries=2).chat.completions.create(model="auto", messages=says())
    assert_told(refused.value, openai.RateLimitError, 429, "insufficient_quota")
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert len(seen) == 1


async def test_a_full_bucket_is_tried_again(
    upstream: Upstream, gateway: StartGateway, sdk: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "openai")
    gw = await gateway(upstream)
    seen = refuse_all(gw, "rate_limit_exceeded", 0.03)
    with pytest.raises(openai.RateLimitError) as refused:
        await sdk(gw, max_retries=2).chat.completions.create(model="auto", messages=says())
    headers = refused.value.response.headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("1", "30")
    assert (len(seen), waits(caplog.records)) == (3, [0.03, 0.03])
    assert upstream.calls == []


async def test_a_refused_request_is_not_tried_again(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    upstream.script(error(400, OVERFLOW, code=400))
    gw = await gateway(upstream)
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        await sdk(gw, max_retries=2).chat.completions.create(model="auto", messages=says())
    assert upstream.count() == 1


async def test_an_error_after_done_is_not_seen(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    upstream.script(Sse([chunk("Hi"), chunk(finish="stop"), DONE, Reset()]))
    client = sdk(await gateway(upstream))
    stream = await client.chat.completions.create(model="auto", messages=says(), stream=True)
    assert text_of(await chunks_of(stream)) == "Hi"
