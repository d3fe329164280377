"""Case C30: no key, prompt or inside of an upstream in answers, logs or metrics, whatever goes wrong."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from gateway.call import Call, Plan
from tests.conftest import StartGateway
from tests.fakes import Hang, Reply, Reset, Sse, Upstream, answer, chunk, event, refusing_port
from tests.fakes.steps import Step
from tests.harness import LocalGateway, Served, config_for
from tests.wire.checks import CHAT, openai_error

UP_KEY, CLIENT_KEY, ADMIN_KEY = "sk-MARK-up-41", "sk-MARK-client-42", "sk-MARK-admin-43"
REDIS = "redis://:MARK-redis-44@127.0.0.1:1/0"
DATABASE = "postgresql://turnout:MARK-db-45@db.internal/x"
PROMPT = "MARK-prompt-46"
INSIDE = "gpu7.MARK-inside-47.internal"
BEARER = {"authorization": f"Bearer {CLIENT_KEY}"}
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
SECTIONS: dict[str, Any] = {
    "gateway": {
        "redis_url": REDIS,
        "database_url": DATABASE,
        "admin_key": ADMIN_KEY,
        "metrics": "admin",
        "timeouts": {"first_event": 0.3, "idle": 0.3, "total": 0.6},
    },
    "keys": [{"name": "ci", "key": CLIENT_KEY, "team": "platform"}],
    "upstreams": {"u0": {"api_key": UP_KEY}},
}
WORDS = f"Incorrect API key provided: {UP_KEY}. Host {INSIDE} said: {PROMPT}"
JSON = b'{"error":{"message":"%b","type":"invalid_request_error","param":null,"code":"%b"}}'
PAGE = f"<html><head><title>502</title></head><body>{WORDS}</body></html>".encode()


def said(code: str = "") -> bytes:
    return JSON % (WORDS.encode(), code.encode())


HIDDEN: dict[str, tuple[Step, int, str]] = {
    "401 for our key": (Reply(said("invalid_api_key"), 401), 502, "upstream_auth"),
    "403": (Reply(said(), 403), 502, "upstream_auth"),
    "400 that is about our key": (Reply(said("invalid_api_key"), 400), 502, "upstream_auth"),
    "402": (Reply(said("insufficient_user_quota"), 402), 502, "upstream_quota"),
    "500": (Reply(said("internal_error"), 500), 502, "upstream_unavailable"),
    "500 in plain text": (Reply(WORDS.encode(), 500, {"content-type": "text/plain"}), 502, "upstream_unavailable"),
    "502 with a page": (Reply(PAGE, 502, {"content-type": "text/html"}), 502, "upstream_unavailable"),
    "503": (Reply(said("overloaded"), 503), 503, "upstream_overloaded"),
    "503 of a router": (Reply(said("model_not_found"), 503), 404, "upstream_unknown_model"),
    "500 that is an overflow": (Reply(said("context_length_exceeded"), 500), 400, "context_length_exceeded"),
    "504": (Reply(said(), 504), 504, "upstream_timeout"),
    "200 with a page": (Reply(PAGE), 502, "upstream_bad_response"),
    "200 with an error on our key": (Reply(said("401")), 502, "upstream_auth"),
    "200 with a 500 inside": (Reply(said("500")), 502, "upstream_unavailable"),
    "a redirect": (Reply(b"", 307, {"location": f"http://{INSIDE}/{UP_KEY}"}), 502, "upstream_bad_response"),
    "403 with a page": (Reply(PAGE, 403, {"content-type": "text/html"}), 502, "upstream_auth"),
    "silence": (Hang(), 504, "upstream_timeout"),
    "a reset": (Reset(), 502, "upstream_bad_response"),
}
SHOWN: dict[str, bytes] = {
    "a validation error that quotes the input": JSON % (b"Input should be a string, input: " + PROMPT.encode(), b"400"),
    "detail": b'{"detail":[{"loc":["body","messages"],"input":"%b"}]}' % PROMPT.encode(),
    "a moderation": JSON % (b"Flagged: " + PROMPT.encode(), b"content_filter"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("step", "status", "code"), HIDDEN.values(), ids=HIDDEN.keys())
async def test_failures_are_told_in_own_words(
    upstream: Upstream, gateway: StartGateway, step: Step, status: int, code: str, stream: bool
) -> None:
    upstream.script(step, times=None)
    gw = await gateway(config_for(upstream, **SECTIONS))
    got = await gw.chat(PROMPT, headers=BEARER, stream=stream)
    refusal = openai_error(got, status, code)
    assert "MARK" not in got.body.decode() + got.head.decode()
    assert "m0" in refusal["message"]
    assert "u0" in refusal["message"]
    await _no_mark(gw)


@pytest.mark.parametrize("body", SHOWN.values(), ids=SHOWN.keys())
async def test_a_callers_own_prompt_comes_back_to_it_alone(
    upstream: Upstream, gateway: StartGateway, body: bytes
) -> None:
    upstream.script(Reply(body, 400))
    gw = await gateway(config_for(upstream, **SECTIONS))
    got = await gw.chat(PROMPT, headers=BEARER)
    assert got.status == 400
    assert PROMPT in got.json()["error"]["message"]
    await _no_mark(gw)


@pytest.mark.parametrize("status", [400, 404, 422, 429])
async def test_our_key_in_a_refusal_that_is_passed_on(upstream: Upstream, gateway: StartGateway, status: int) -> None:
    """Debugging servers echo request headers."""
    upstream.script(Reply(JSON % (b"headers were: authorization: Bearer " + UP_KEY.encode(), b"x"), status), times=None)
    gw = await gateway(config_for(upstream, **SECTIONS))
    got = await gw.chat(headers=BEARER)
    assert got.status == status
    assert UP_KEY not in got.body.decode()
    await _no_mark(gw)


async def test_an_error_after_the_commit_point(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse([*answer("Hel")[:2], event(said("500"))]))
    gw = await gateway(config_for(upstream, **SECTIONS))
    got = await gw.chat(PROMPT, headers=BEARER, stream=True)
    assert chunk("Hel") in got.body
    assert b'"error"' in got.body
    assert UP_KEY not in got.body.decode()
    await _no_mark(gw)


async def test_earlier_attempts_are_told_in_own_words(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Reply(said("rate_limit_exceeded"), 429))
    models = {"m1": {"upstream": "u1", "model": "x"}}
    with refusing_port() as port:
        dead = {"u1": {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": UP_KEY}}
        sections = SECTIONS | {"upstreams": SECTIONS["upstreams"] | dead}
        sections["gateway"] = SECTIONS["gateway"] | {"attempts": 2}
        gw = await gateway(config_for(upstream, models=models, routes={"auto": {"fallback": ["m1"]}}, **sections))
        got = await gw.chat(PROMPT, headers=BEARER)
    message = openai_error(got, 502, "upstream_unavailable")["message"]
    assert "MARK" not in message
    assert "429" in message
    assert "127.0.0.1" not in message
    await _no_mark(gw)


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"authorization": "Bearer sk-MARK-wrong"}, {"model": "auto", "messages": []}, 401),
        ({"x-api-key": "sk-MARK-wrong"}, {"model": "auto", "messages": []}, 401),
        ({"authorization": f"Basic {CLIENT_KEY}"}, {"model": "auto", "messages": []}, 401),
        (BEARER, {"model": "auto", "messages": PROMPT}, 400),
        (BEARER, {"model": "nothing", "messages": [PROMPT]}, 404),
        (BEARER, b'{"model":"auto","messages":["%b"]' % PROMPT.encode(), 400),
        (BEARER | {"content-type": f"text/{PROMPT}"}, {"model": "auto"}, 415),
        (BEARER | {"x-request-id": f"{PROMPT} {CLIENT_KEY}"}, {"model": "auto"}, 400),
    ],
)
async def test_refusals_of_the_gateway(
    upstream: Upstream, gateway: StartGateway, headers: dict[str, str], body: Any, status: int
) -> None:
    gw = await gateway(config_for(upstream, **SECTIONS))
    got = await gw.fetch(f"{CHAT}?key={CLIENT_KEY}", body, headers=headers)
    openai_error(got, status)
    assert "MARK" not in got.body.decode() + got.head.decode()
    await _no_mark(gw)


async def test_a_good_call_leaves_no_text_behind(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, **SECTIONS))
    for stream in (False, True):
        assert (await gw.chat(PROMPT, headers=BEARER, stream=stream)).status == 200
    line = gw.calls()[0]
    assert (line["key"], line["team"], line["outcome"]) == ("ci", "platform", "ok")
    await _no_mark(gw)


@pytest.mark.parametrize("where", ["/nothing", "/v1/models", "/health/ready", "/openapi.json", "/v1/models/nothing"])
async def test_pages(upstream: Upstream, gateway: StartGateway, where: str) -> None:
    gw = await gateway(config_for(upstream, **SECTIONS))
    for headers in ({}, BEARER):
        got = await gw.fetch(f"{where}?key={CLIENT_KEY}", headers=headers)
        assert "MARK" not in got.body.decode() + got.head.decode()
    await _no_mark(gw)


async def test_the_metrics_need_the_admin_key(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, **SECTIONS))
    openai_error(await gw.fetch("/metrics"), 401, "invalid_api_key")
    openai_error(await gw.fetch("/metrics", headers=BEARER), 401, "invalid_api_key")
    assert (await gw.fetch("/metrics", headers=ADMIN)).status == 200


async def test_beyond_loopback_the_metrics_are_closed_by_default(upstream: Upstream, gateway: StartGateway) -> None:
    settings = {"host": "0.0.0.0", "admin_key": ADMIN_KEY}
    gw = await gateway(config_for(upstream, gateway=settings, keys=SECTIONS["keys"]))
    openai_error(await gw.fetch("/metrics"), 401, "invalid_api_key")
    assert (await gw.fetch("/metrics", headers=ADMIN)).status == 200


async def test_a_fault_of_the_gateway_shows_nothing_of_itself(upstream: Upstream) -> None:
    gw = LocalGateway(config_for(upstream, **SECTIONS))
    async with contextlib.AsyncExitStack() as running:
        await running.enter_async_context(gw)
        flow = gw.app.gateway.flow
        flow.stages = replace(flow.stages, plan=_broken)
        got = await gw.chat(PROMPT, headers=BEARER)
        ending = running.pop_all()
    with pytest.raises(AssertionError, match="Traceback"):  # the harness sees it in the log, as an operator would
        await ending.aclose()
    refusal = openai_error(got, 500, "internal_error")
    assert not [word for word in ("MARK", "ZeroDivision", ".py", "_broken") if word in refusal["message"]]
    assert "ZeroDivisionError" in gw.output
    assert "MARK" not in gw.output


def _broken(call: Call) -> Plan:
    """A bug: what it holds must not show, neither to the caller nor by local variables in the log."""
    prompt, key = call.body.raw, call.headers[b"authorization"]
    raise ZeroDivisionError(f"{len(prompt)} {len(key)}")


async def _no_mark(gw: Served) -> None:
    """Neither the log nor the metrics hold any mark."""
    metrics = await gw.fetch("/metrics", headers=ADMIN)
    assert metrics.status == 200
    assert b"MARK" not in metrics.body
    found = [line for line in gw.output.splitlines() if "MARK" in line]
    assert not found
