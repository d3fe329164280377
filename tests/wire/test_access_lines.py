"""Every request that is no call leaves one line, without secrets; health and metrics only if they fail."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import StartGateway
from tests.fakes import Upstream, request
from tests.harness import config_for
from tests.wire.calls import LIMIT
from tests.wire.checks import BEARER, CHAT, KEY, KEYS


@pytest.mark.parametrize(
    ("method", "target", "headers", "line"),
    [
        ("GET", f"/v1/models?key={KEY}", BEARER, {"path": "/v1/models", "status": 200, "key": "ci"}),
        ("GET", "/api/v1/models/none", BEARER, {"status": 404, "key": "ci", "code": "model_not_found"}),
        ("GET", "/v1/models", {"x-api-key": "wrong"}, {"status": 401, "code": "invalid_api_key"}),
        ("GET", "/nothing", BEARER, {"path": "/nothing", "status": 404, "key": "ci", "code": "unknown_path"}),
        ("GET", CHAT, BEARER, {"path": CHAT, "status": 405, "code": "method_not_allowed"}),
        ("DELETE", "/metrics", {}, {"path": "/metrics", "status": 405}),
        ("FOO", "/", {}, {"status": 400, "code": "invalid_request"}),
    ],
)
async def test_one_line(
    upstream: Upstream,
    gateway: StartGateway,
    method: str,
    target: str,
    headers: dict[str, str],
    line: dict[str, object],
) -> None:
    gw = await gateway(config_for(upstream, keys=KEYS))
    answer = await gw.fetch(target, method=method, headers=headers)
    (told,) = gw.log(event="request")
    assert told.items() >= line.items()
    assert told["id"] == answer.header("x-request-id")
    assert told["client"] == "127.0.0.1"
    assert not {KEY, "wrong"} & set(gw.output.replace('"', " ").replace("=", " ").split())


async def test_no_line(upstream: Upstream, gateway: StartGateway) -> None:
    """Calls have their own."""
    gw = await gateway(upstream)
    for target in ("/health/live", "/health/ready", "/metrics"):
        assert (await gw.fetch(target)).status == 200
    await gw.chat()
    assert not gw.log(event="request")
    assert len(gw.calls()) == 1


async def test_a_caller_that_leaves_is_no_fault(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(request("POST", "/v1/route", {"content-length": "1000"}, b"{"), separate=True)
    assert (await gw.logged(event="request"))["status"] == 499
    assert not gw.log(level="error")


async def test_behind_a_trusted_proxy_it_names_the_client(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, gateway={"trusted_proxies": ["127.0.0.1"]}))
    await gw.fetch("/v1/models", headers={"x-forwarded-for": "192.0.2.7"})
    assert [line["client"] for line in gw.log(event="request")] == ["192.0.2.7"]
