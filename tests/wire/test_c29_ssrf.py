"""Case C29: upstream, key and headers come from the configuration; nothing that a caller sends can choose them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Upstream
from tests.harness import config_for
from tests.wire.checks import CHAT, openai_error

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def trap() -> AsyncIterator[Upstream]:
    """Where a gateway that listens to its callers would go."""
    async with Upstream() as up:
        yield up
        assert up.connections.total == 0


def bait(url: str) -> dict[str, Any]:
    """Fields by which callers steer other gateways."""
    fields: dict[str, Any] = dict.fromkeys(
        ("api_base", "base_url", "azure_endpoint", "endpoint", "upstream", "proxy", "aws_bedrock_runtime_endpoint"), url
    )
    return fields | {
        "api_key": "sk-evil",
        "extra_headers": {"authorization": "Bearer sk-evil", "host": "evil"},
        "headers": {"x-evil": "1"},
        "custom_llm_provider": "openai",
        "proxies": {"http": url, "https": url},
        "model_list": [{"model_name": "auto", "litellm_params": {"api_base": url}}],
        "fallbacks": ["https://evil.example"],
        "mock_response": "evil",
        "timeout": 0,
        "num_retries": 99,
    }


@pytest.mark.parametrize("nested", [None, "extra_body", "metadata", "litellm_params", "options"])
async def test_fields_of_the_body_steer_nothing(
    upstream: Upstream, gateway: StartGateway, trap: Upstream, nested: str | None
) -> None:
    fields = bait(trap.url) if nested is None else {nested: bait(trap.url) | {nested: bait(trap.url)}}
    sent = json.dumps({"model": "fake", "messages": MESSAGES} | fields).encode()
    gw = await gateway(upstream)
    assert (await gw.fetch(CHAT, sent)).status == 200
    call = await upstream.call()
    assert (call.target, call.body) == (CHAT, sent)
    assert call.header("authorization") == "Bearer sk-upstream-0"
    assert b"evil" not in call.head
    assert upstream.count() == 1


@pytest.mark.parametrize("path", ["", "/v1", "/v1/chat/completions", "/v1#fake"])
async def test_a_model_that_is_a_url_is_unknown(
    upstream: Upstream, gateway: StartGateway, trap: Upstream, path: str
) -> None:
    gw = await gateway(upstream)
    for model in (f"{trap.origin}{path}", f"openai/{trap.origin}{path}", f"m0@{trap.origin}{path}", "../../admin"):
        openai_error(await gw.chat(model=model), 404, "model_not_found")
    assert upstream.count() == 0


async def test_headers_and_query_steer_nothing(upstream: Upstream, gateway: StartGateway, trap: Upstream) -> None:
    names = ("x-upstream", "x-base-url", "x-portkey-custom-host", "helicone-target-url", "x-forwarded-host", "host")
    headers = dict.fromkeys(names, trap.origin.removeprefix("http://"))
    gw = await gateway(upstream)
    query = f"?api_base={trap.url}&base_url={trap.url}&model=x&api_key=sk-evil"
    answer = await gw.fetch(f"{CHAT}{query}", {"model": "auto", "messages": MESSAGES}, headers=headers)
    assert answer.status == 200
    call = await upstream.call()
    assert call.target == CHAT
    assert str(trap.port).encode() not in call.head


@pytest.mark.parametrize("stream", [False, True])
async def test_no_image_is_fetched(upstream: Upstream, gateway: StartGateway, trap: Upstream, stream: bool) -> None:
    urls = [f"{trap.origin}/cat.png", "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd"]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    gw = await gateway(upstream)
    answer = await gw.fetch(CHAT, {"model": "auto", "stream": stream, "messages": [{"role": "user", "content": parts}]})
    assert answer.status == 200
    sent = (await upstream.call()).json()["messages"][0]["content"]
    assert [part["image_url"]["url"] for part in sent] == urls


async def test_the_callers_proxy_variables_are_not_the_gateways(
    upstream: Upstream, gateway: StartGateway, trap: Upstream
) -> None:
    """A loopback upstream is never called through a proxy."""
    env = {"HTTP_PROXY": trap.origin, "http_proxy": trap.origin, "ALL_PROXY": trap.origin}
    gw = await gateway(config_for(upstream), env)
    assert (await gw.chat()).status == 200
    assert upstream.count() == 1
