"""`gateway.cors`: pages of the listed origins may call, all others may not; the answers themselves stay as they are."""

from __future__ import annotations

import pytest

from tests.conftest import StartGateway
from tests.fakes import Upstream
from tests.harness import LocalGateway, config_for

PAGE = "https://app.example"
BODY = b'{"model":"auto","messages":[{"role":"user","content":"hi"}]}'


@pytest.fixture
async def allowed(gateway: StartGateway, upstream: Upstream) -> LocalGateway:
    return await gateway(config_for(upstream, gateway={"cors": [PAGE]}))


def preflight(origin: str) -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }


async def test_a_listed_page_may_ask_and_read(allowed: LocalGateway) -> None:
    asked = await allowed.fetch("/v1/chat/completions", method="OPTIONS", headers=preflight(PAGE))
    assert asked.status == 200
    assert asked.header("access-control-allow-origin") == PAGE
    assert "authorization" in (asked.header("access-control-allow-headers") or "")
    answer = await allowed.fetch("/v1/chat/completions", BODY, headers={"origin": PAGE})
    assert answer.status == 200
    assert answer.header("access-control-allow-origin") == PAGE
    readable = (answer.header("access-control-expose-headers") or "").split(", ")
    assert {"x-turnout-model", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-requests"} <= set(readable)
    listed = await allowed.fetch("/v1/models", headers={"origin": PAGE})
    assert listed.header("access-control-allow-origin") == PAGE


async def test_another_page_may_not(allowed: LocalGateway) -> None:
    asked = await allowed.fetch("/v1/chat/completions", method="OPTIONS", headers=preflight("https://evil.example"))
    assert asked.status == 400
    assert asked.header("access-control-allow-origin") is None


async def test_without_the_setting_no_page_may(gateway: StartGateway, upstream: Upstream) -> None:
    gw = await gateway(upstream)
    asked = await gw.fetch("/v1/chat/completions", method="OPTIONS", headers=preflight(PAGE))
    assert asked.status == 405
    assert asked.header("access-control-allow-origin") is None


async def test_a_page_cannot_slip_a_body_past_the_preflight(gateway: StartGateway, upstream: Upstream) -> None:
    """A browser sends a body without a content type, or as text, to any address without asking first."""
    gw = await gateway(upstream)
    bare = b"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\norigin: %b\r\ncontent-length: %d\r\n" % (
        PAGE.encode(),
        len(BODY),
    )
    for content_type in (b"", b"content-type: text/plain\r\n"):
        async with gw.connect() as client:
            await client.send(bare + content_type + b"\r\n" + BODY)
            assert (await client.response()).status == 415
    assert upstream.count() == 0
