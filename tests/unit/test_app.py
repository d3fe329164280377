"""The application: what goes to the flow, what to the web pages, and what runs beside them from start to end."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.call import ENDPOINTS
from gateway.upstream.pool import PoolLimits
from gateway.wiring import Gateway
from tests.conftest import StartGateway
from tests.fakes import Upstream, request
from tests.harness import LocalGateway, config_for

BODIES = {
    "chat": {"model": "auto", "messages": [{"role": "user", "content": "hi"}]},
    "completions": {"model": "auto", "prompt": "hi"},
    "embeddings": {"model": "auto", "input": "hi"},
}


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
@pytest.mark.parametrize("name", BODIES)
async def test_inference_paths(upstream: Upstream, gateway: StartGateway, name: str, prefix: str) -> None:
    gw = await gateway(upstream)
    path = ENDPOINTS[name].path
    answered = await gw.fetch(prefix + path, BODIES[name])
    assert answered.status == 200
    assert answered.header("x-turnout-route") == "auto"
    assert (await upstream.call()).path == f"/v1{path}"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models", 200),
        ("GET", "/health/live", 200),
        ("GET", "/health/ready", 200),
        ("GET", "/metrics", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/v1/chat/completions", 404),
        ("POST", "/chat/completions", 404),
        ("GET", "/docs", 404),
    ],
)
async def test_everything_else_is_a_web_page(
    upstream: Upstream, gateway: StartGateway, method: str, path: str, status: int
) -> None:
    gw = await gateway(upstream)
    answered = await gw.fetch(path, b"{}" if method == "POST" else None, method=method)
    assert answered.status == status
    assert answered.header("x-request-id")
    if status >= 400:
        assert answered.json()["error"]["message"]
    assert upstream.count() == 0


async def test_unusual_requests_take_the_longer_way_to_the_same_flow(upstream: Upstream, gateway: StartGateway) -> None:
    """By ASGI: another version of HTTP, a request from a web page."""
    gw = await gateway(config_for(upstream, gateway={"cors": ["https://page.test"]}))
    body = json.dumps(BODIES["chat"]).encode()
    sent = request("POST", "/v1/chat/completions", {"origin": "https://page.test"}, body)
    for raw in (sent, sent.replace(b"HTTP/1.1", b"HTTP/1.0")):
        async with gw.connect() as client:
            await client.send(raw)
            answered = await client.response()
            assert answered.status == 200
            assert answered.header("access-control-allow-origin") == "https://page.test"
            assert json.loads(await answered.read())["choices"]
    assert upstream.count() == 2


async def test_the_document_describes_inference_as_well(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    paths = (await gw.fetch("/openapi.json")).json()["paths"]
    assert {f"/v1{endpoint.path}" for endpoint in ENDPOINTS.values()} <= paths.keys()


async def test_what_runs_beside_it_ends_with_it_and_the_end_is_the_last(upstream: Upstream) -> None:
    happened: list[str] = []
    started = asyncio.Event()

    async def beside(gateway: Gateway) -> None:
        happened.append(gateway.runtime.gateway.host)
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            happened.append("cancelled")

    at_end = lambda: happened.append("end")  # noqa: E731
    async with LocalGateway(config_for(upstream), background=beside, at_end=at_end) as gw:
        await started.wait()
        await gw.chat()
        assert upstream.connections.open == 1
    assert happened == ["127.0.0.1", "cancelled", "end"]
    async with asyncio.timeout(30):
        await upstream.until_open(0)


async def test_options_reach_the_gateway(upstream: Upstream) -> None:
    async with LocalGateway(config_for(upstream), pool_limits=PoolLimits(age_seconds=0)) as gw:
        for _ in range(2):
            await gw.chat()
    assert upstream.connections.total == 2


async def test_the_document_is_for_callers_with_a_key_where_there_are_keys(
    upstream: Upstream, gateway: StartGateway
) -> None:
    keys = [{"name": "ci", "key": "sk-known"}]
    gw = await gateway(config_for(upstream, keys=keys, gateway={"admin_key": "sk-admin"}))
    assert (await gw.fetch("/openapi.json")).status == 401
    for key in ("sk-known", "sk-admin"):
        assert (await gw.fetch("/openapi.json", headers={"authorization": f"Bearer {key}"})).status == 200
