"""Case C27: what is asked for is decided by the request's path alone, and its check of the key by the route itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.database import Database
from tests.conftest import StartGateway
from tests.fakes import Upstream, request
from tests.harness import config_for
from tests.wire.checks import BEARER, CHAT, KEYS, openai_error

ADMIN = "sk-admin-key"
CLOSED: dict[str, Any] = {"gateway": {"metrics": "admin", "admin_key": ADMIN}, "keys": KEYS}
HOSTS = ["h", "h/health?x=", "h/health/live?x=", "h/#@y", "h/health/live#", "127.0.0.1/health/live", "", "h?", "\xff"]
PROTECTED = [
    ("GET", "/metrics"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/m0"),
    ("POST", CHAT),
    ("POST", "/api/v1/embeddings"),
    ("POST", "/admin/reload"),
    ("GET", "/admin/state"),
    ("GET", "/admin/events"),
    ("GET", "/admin/errors"),
    ("GET", "/admin/requests/req_1"),
    ("GET", "/admin/audit"),
    ("POST", "/admin/route"),
    ("POST", "/admin/try"),
    ("POST", "/admin/models/m0"),
    ("POST", "/admin/upstreams/u0/replicas/0"),
    ("POST", "/admin/experiments/e"),
    ("GET", "/admin/keys"),
    ("POST", "/admin/keys"),
    ("GET", "/admin/keys/ci"),
    ("DELETE", "/admin/keys/ci"),
    ("POST", "/admin/keys/ci/rotate"),
    ("GET", "/admin/usage"),
]
DETOURS = [
    "//health",
    "//health/live",
    "/health/../v1/models",
    "/health/live/../../metrics",
    "/health/live/..%2f..%2fmetrics",
    "/health/%2e%2e/metrics",
    "/%2e%2e/metrics",
    "/health/live;/../metrics",
    "/health/live%00/metrics",
    "/health/live%0d%0a/metrics",
    "/metrics/",
    "/metrics%2f",
    "/./metrics",
    "//metrics",
    "/METRICS",
    "http://h/health/live/../metrics",
    "http://h//metrics",
    "/v1//models",
    "/v1/./models",
    "/admin/../health/live",
    "/health/live/../../admin/keys",
    "/health/../admin/keys",
    "/%2e%2e/admin/keys",
    "//admin/keys",
    "/admin//keys",
    "/admin/keys/",
    "/admin/keys%2f",
    "/ops/../admin/state",
    "//admin/events",
    "/ADMIN/keys",
    "http://h/health/live/../../admin/keys",
    "http://h/admin/keys",
]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """Cannot be opened: nothing here gets as far as that, and no start waits for it."""
    return Database("sqlite:///missing/t.db", tmp_path)


@pytest.mark.seconds
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("method", "target"), PROTECTED)
async def test_no_host_opens_a_path(
    upstream: Upstream, gateway: StartGateway, database: Database, method: str, target: str, host: str
) -> None:
    gw = await gateway(config_for(upstream, **CLOSED), database=database)
    body = {"model": "auto", "messages": [], "input": ""} if method == "POST" else None
    answer = await gw.fetch(target, body, method=method, headers={"host": host})
    openai_error(answer, 401, "invalid_api_key")
    assert answer.header("location") is None
    assert upstream.count() == 0


@pytest.mark.seconds
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("target", DETOURS)
async def test_no_detour_opens_a_path(
    upstream: Upstream, gateway: StartGateway, database: Database, method: str, target: str
) -> None:
    gw = await gateway(config_for(upstream, **CLOSED), database=database)
    answer = await gw.fetch(target, method=method, headers={"host": "h/health?x="})
    openai_error(answer, 401, "invalid_api_key")
    assert answer.header("location") is None


@pytest.mark.parametrize(
    "target",
    [
        "/ops/assets/../../admin/state",
        "/ops/assets/%2e%2e/%2e%2e/admin/state",
        "/ops/assets/..%2f..%2faccess.py",
        "/ops/assets/../access.py",
        "/ops/assets//etc/passwd",
        "/ops/assets/%2fetc%2fpasswd",
        "/ops/assets/index.html%00.js",
        "/ops/assets/",
    ],
)
async def test_the_operations_pages_files_lead_nowhere_else(
    upstream: Upstream, gateway: StartGateway, target: str
) -> None:
    gw = await gateway(config_for(upstream, **CLOSED))
    answer = await gw.fetch(target, headers={"host": "h"})
    assert openai_error(answer, answer.status)["code"] in ("unknown_path", "invalid_api_key")


@pytest.mark.parametrize(
    "name", ["x-original-url", "x-rewrite-url", "x-forwarded-prefix", "x-forwarded-host", "forwarded"]
)
async def test_no_other_header_names_the_path(upstream: Upstream, gateway: StartGateway, name: str) -> None:
    gw = await gateway(config_for(upstream, **CLOSED))
    openai_error(await gw.fetch("/metrics", headers={name: "/health/live"}), 401, "invalid_api_key")
    live = await gw.fetch("/health/live", headers={name: "/metrics"})
    assert (live.status, live.json()) == (200, {"status": "live"})


@pytest.mark.parametrize("target", ["/metrics", "http://h/metrics", "/metrics?token=x"])
async def test_the_metrics_take_the_admin_key_only(upstream: Upstream, gateway: StartGateway, target: str) -> None:
    gw = await gateway(config_for(upstream, **CLOSED))
    openai_error(await gw.fetch(target, headers=BEARER), 401, "invalid_api_key")
    for headers in ({"authorization": f"Bearer {ADMIN}"}, {"x-api-key": ADMIN}):
        assert (await gw.fetch(target, headers=headers)).status == 200
    openai_error(await gw.chat(headers={"authorization": f"Bearer {ADMIN}"}), 401, "invalid_api_key")


async def test_a_request_without_host_or_in_absolute_form(
    upstream: Upstream, gateway: StartGateway, database: Database
) -> None:
    gw = await gateway(config_for(upstream, **CLOSED), database=database)
    for head in (
        b"GET /metrics HTTP/1.0\r\n\r\n",
        b"GET http://h/metrics HTTP/1.1\r\nhost: other\r\n\r\n",
        b"GET /admin/keys HTTP/1.0\r\n\r\n",
        b"GET http://127.0.0.1/admin/keys HTTP/1.1\r\nhost: other\r\n\r\n",
    ):
        async with gw.connect() as client:
            await client.send(head)
            answer = await client.response()
            await answer.read()
            openai_error(answer, 401, "invalid_api_key")


@pytest.mark.seconds
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    "target",
    ["/admin/keys", "http://127.0.0.1/admin/keys", "/admin/state", "/admin/events", "/ops"],
)
async def test_no_host_makes_a_caller_local(
    upstream: Upstream, gateway: StartGateway, database: Database, target: str, host: str
) -> None:
    """Without an admin key: a page whose name was made to lead here (DNS rebinding) sends its own name."""
    gw = await gateway(config_for(upstream), database=database)
    openai_error(await gw.fetch(target, headers={"host": host}), 403, "invalid_request")
    assert (await gw.fetch("/admin/keys", headers={"host": "localhost:8080"})).status == 503  # as far as the database


@pytest.mark.parametrize("host", ["127.0.0.1", "h", "localhost"])
async def test_beyond_loopback_admin_is_off_without_its_key(
    upstream: Upstream, gateway: StartGateway, database: Database, host: str
) -> None:
    gw = await gateway(config_for(upstream, gateway={"host": "0.0.0.0"}, keys=KEYS), database=database)
    for headers in (BEARER, {}, {"x-api-key": ""}):
        openai_error(await gw.fetch("/admin/keys", headers=headers | {"host": host}), 404, "unknown_path")


async def test_health_stays_open(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, **CLOSED))
    for target in ("/health/live", "/health/ready"):
        assert (await gw.fetch(target)).status == 200


async def test_an_open_gateway_tells_of_unknown_paths(upstream: Upstream, gateway: StartGateway) -> None:
    """Without keys there is nothing to protect: the same detours are plain 404s."""
    gw = await gateway(upstream)
    async with gw.connect() as client:
        for target in DETOURS[:5]:
            await client.send(request("GET", target))
            answer = await client.response()
            await answer.read()
            openai_error(answer, 404)
