"""Case C28: an allow-list outward, an own list back; no credential, cookie or redirect passes in either direction."""

from __future__ import annotations

import re

import pytest

from tests.conftest import StartGateway
from tests.fakes import Reply, Sse, Upstream, answer, completion
from tests.harness import config_for
from tests.wire.checks import BEARER, CHAT, KEY, KEYS, openai_error

SENT = [
    ("authorization", f"Bearer {KEY}"),
    ("x-api-key", "client-secret"),
    ("cookie", "session=client-secret"),
    ("proxy-authorization", "Basic client-secret"),
    ("connection", "close, X-Secret, authorization"),
    ("x-secret", "client-secret"),
    ("host", "evil.example"),
    ("accept-encoding", "br, gzip"),
    ("accept", "text/html"),
    ("user-agent", "client/1"),
    ("openai-organization", "org-client-secret"),
    ("openai-project", "proj-client-secret"),
    ("x-forwarded-for", "10.0.0.1"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-host", "evil.example"),
    ("forwarded", "for=10.0.0.1"),
    ("via", "1.1 evil"),
    ("te", "trailers"),
    ("origin", "https://evil.example"),
    ("referer", "https://evil.example/"),
    ("x-stainless-lang", "python"),
    ("x-upstream", "evil.example"),
    ("content-type", "application/json; charset=utf-8; client-secret"),
]
PASSED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "v=1,w=2", "openai-beta": "assistants=v2"}


@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_upstream_sees(upstream: Upstream, gateway: StartGateway, stream: bool) -> None:
    gw = await gateway(config_for(upstream, keys=KEYS))
    assert (await gw.chat(headers=[*SENT, *PASSED.items()], stream=stream)).status == 200
    call = await upstream.call()
    headers = dict(call.headers)
    assert len(headers) == len(call.headers)
    length, user_agent, request_id = (headers.pop(n) for n in ("content-length", "user-agent", "x-request-id"))
    assert headers == {
        "host": f"127.0.0.1:{upstream.port}",
        "authorization": "Bearer sk-upstream-0",
        "accept": "text/event-stream" if stream else "application/json",
        "accept-encoding": "identity",
        "content-type": "application/json",
        **PASSED,
    }
    assert length == str(len(call.body))
    assert re.fullmatch(r"turnout/[\d.]+", user_agent)
    assert re.fullmatch(r"req_[0-9a-f]{32}", request_id)
    assert b"secret" not in call.head


async def test_an_upstream_without_a_key_gets_none(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, upstreams={"u0": {"api_key": None}}, keys=KEYS))
    assert (await gw.chat(headers=BEARER)).status == 200
    assert (await upstream.call()).header("authorization") is None


RETURNED = [
    ("set-cookie", "session=upstream-secret"),
    ("server", "upstream-secret"),
    ("location", "http://upstream-secret/"),
    ("via", "1.1 upstream-secret"),
    ("x-request-id", "upstream-secret"),
    ("x-powered-by", "upstream-secret"),
    ("access-control-allow-origin", "*"),
    ("openai-organization", "upstream-secret"),
    ("www-authenticate", "Bearer upstream-secret"),
    ("x-ratelimit-remaining-requests", "7"),
    ("connection", "close"),
]
OWN = {
    "date",
    "server",
    "content-type",
    "content-length",
    "transfer-encoding",
    "cache-control",
    "x-accel-buffering",
    "x-request-id",
    "x-turnout-config",
    "x-turnout-route",
    "x-turnout-rule",
    "x-turnout-model",
    "x-turnout-upstream",
    "x-turnout-attempts",
    "openai-processing-ms",
}


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(completion(), headers=RETURNED), 200),
        (Sse(answer("hi"), headers=RETURNED), 200),
        (Reply(b'{"error":{"message":"no"}}', 422, headers=RETURNED), 422),
        (Reply(b"{}", 500, headers=RETURNED), 502),
    ],
)
async def test_what_the_caller_sees(upstream: Upstream, gateway: StartGateway, reply: Reply, status: int) -> None:
    upstream.script(reply)
    gw = await gateway(upstream)
    got = await gw.chat(stream=reply.headers[-1][0] == "content-type" if isinstance(reply.headers, list) else False)
    assert got.status == status
    assert {name.lower() for name, _ in got.headers} <= OWN
    assert b"upstream-secret" not in got.head


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("stream", [False, True])
async def test_no_redirect_is_followed(upstream: Upstream, gateway: StartGateway, status: int, stream: bool) -> None:
    async with Upstream() as elsewhere:
        upstream.script(Reply(b"", status, {"location": f"{elsewhere.origin}{CHAT}"}))
        gw = await gateway(upstream)
        got = await gw.chat(stream=stream)
        refusal = openai_error(got, 502, "upstream_bad_response")
        assert (elsewhere.connections.total, upstream.count()) == (0, 1)
    assert got.header("location") is None
    assert str(elsewhere.port) not in refusal["message"]


@pytest.mark.parametrize("given", ["abc", "req_1.2:3-4", "a" * 128, "0"])
async def test_a_sane_request_id_is_kept(upstream: Upstream, gateway: StartGateway, given: str) -> None:
    gw = await gateway(upstream)
    got = await gw.chat(headers={"x-request-id": given})
    assert got.header("x-request-id") == given
    assert (await upstream.call()).header("x-request-id") == given
    assert (await gw.logged(event="call"))["id"] == given


@pytest.mark.parametrize(
    "given", ["", "a b", "a" * 129, "\xe9", "a,b", "../x", "<script>", "${jndi:ldap://x}", "a\tb", "%0a"]
)
async def test_an_odd_request_id_is_replaced(upstream: Upstream, gateway: StartGateway, given: str) -> None:
    gw = await gateway(upstream)
    for got in (
        await gw.chat(headers={"x-request-id": given}),
        await gw.fetch(CHAT, b"{", headers={"x-request-id": given}),
    ):
        assert re.fullmatch(r"req_[0-9a-f]{32}", got.header("x-request-id") or "")
    assert given == "" or given not in gw.output


async def test_every_request_has_an_id_of_its_own(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    ids = [(await gw.chat()).header("x-request-id") for _ in range(5)]
    assert len(set(ids)) == 5
    assert [call.header("x-request-id") for call in upstream.calls] == ids


@pytest.mark.parametrize("target", ["/v1/models", "/v1/models/nothing", "/nothing", "/metrics", "/health/ready"])
async def test_the_other_pages_return_an_id_too(upstream: Upstream, gateway: StartGateway, target: str) -> None:
    gw = await gateway(upstream)
    assert (await gw.fetch(target, headers={"x-request-id": "mine"})).header("x-request-id") == "mine"
    assert (await gw.fetch(target)).header("x-request-id")
