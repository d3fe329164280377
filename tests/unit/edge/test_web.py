"""The pages beside inference, asked through ASGI with a stand-in for the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from gateway.call import Caller
from gateway.config.runtime import GatewaySettings, Runtime
from gateway.edge.web import mount
from gateway.errors import GatewayError
from tests.unit.building import a_model, a_runtime, an_upstream


class Stand:
    """What the pages need of the gateway."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.missing: dict[str, dict[str, str]] = {}
        self.fault: Exception | None = None
        self.lines: list[dict[str, Any]] = []

    def visited(self, peer: str, headers: Mapping[bytes, bytes], fields: Mapping[str, Any]) -> None:
        self.lines.append({"peer": peer, **fields})

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller:
        if headers.get(b"x-api-key") != b"good":
            raise GatewayError("invalid_api_key", "no")
        return Caller("ci", models=frozenset({"auto", "a/b"}))

    def unknown(self, name: str, caller: Caller) -> str:
        return f"The model '{name[:100]}' does not exist here. Nearest: m0."

    def names(self, caller: Caller) -> list[str]:
        return [n for n in ("auto", "m0", "a/b") if caller.models is None or n in caller.models]

    def explain(self, headers: Mapping[bytes, bytes], caller: Caller, raw: bytes) -> dict[str, Any]:
        return {"route": raw.decode(), "key": caller.key}

    def is_admin(self, headers: Mapping[bytes, bytes]) -> bool:
        return headers.get(b"x-api-key") == b"admin"

    def exposition(self) -> tuple[str, bytes]:
        if self.fault is not None:
            raise self.fault
        return "text/plain; version=0.0.4", b"turnout_up 1\n"

    async def unusable(self) -> dict[str, dict[str, str]]:
        return self.missing


def stand(**settings: Any) -> Stand:
    models = (a_model("m0", context=4096), a_model("a/b", an_upstream("other")))
    return Stand(a_runtime(*models, gateway=GatewaySettings(**settings)))


class Pages:
    def __init__(self, gateway: Stand) -> None:
        self.gateway = gateway
        web = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        mount(web, gateway)
        transport = httpx2.ASGITransport(web, raise_app_exceptions=False)
        self.client = httpx2.AsyncClient(transport=transport, base_url="http://t")

    async def get(self, path: str, key: str = "good", **options: Any) -> httpx2.Response:
        return await self.client.get(path, headers={"x-api-key": key} | options)


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    made = Pages(stand())
    async with made.client:
        yield made


async def test_models(pages: Pages) -> None:
    rows = (await pages.get("/v1/models")).json()["data"]
    assert rows == [
        {"id": "auto", "object": "model", "created": 0, "owned_by": "turnout", "context": 4096},
        {"id": "a/b", "object": "model", "created": 0, "owned_by": "other", "context": None},
    ]
    for spelling in ("/v1/models/a/b", "/api/v1/models/a%2Fb"):
        assert (await pages.get(spelling)).json() == rows[1]


@pytest.mark.parametrize("name", ["m0", "nothing", "A/B", "a/b/", "%ff", "x" * 5000])
async def test_a_model_that_the_key_does_not_see(pages: Pages, name: str) -> None:
    answer = await pages.get(f"/v1/models/{name}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert len(answer.content) < 1000


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/auto", "/nothing", "/v1/v1/models"])
async def test_without_a_key(pages: Pages, path: str) -> None:
    answer = await pages.get(path, key="bad")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_health(pages: Pages) -> None:
    assert (await pages.get("/health/live", key="")).json() == {"status": "live"}
    assert (await pages.get("/health/ready", key="")).json() == {"status": "ready", "config": "0123456789ab"}
    pages.gateway.missing = {"auto": {"m0": "off"}}
    answer = await pages.get("/health/ready", key="")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["unusable"] == pages.gateway.missing


@pytest.mark.parametrize(
    ("settings", "key", "status"),
    [
        ({}, "", 200),
        ({"host": "0.0.0.0"}, "", 401),
        ({"host": "0.0.0.0"}, "good", 401),
        ({"host": "0.0.0.0"}, "admin", 200),
        ({"host": "0.0.0.0", "metrics": "open"}, "", 200),
        ({"metrics": "admin"}, "", 401),
        ({"metrics": "admin"}, "admin", 200),
        ({"host": "::1"}, "", 200),
    ],
)
async def test_who_may_read_the_metrics(settings: dict[str, Any], key: str, status: int) -> None:
    pages = Pages(stand(**settings))
    async with pages.client:
        answer = await pages.get("/metrics", key=key)
    assert answer.status_code == status
    assert (answer.content == b"turnout_up 1\n") is (status == 200)


@pytest.mark.parametrize(("key", "status"), [("", 401), ("bad", 401), ("good", 200), ("admin", 200)])
async def test_who_may_read_the_document(pages: Pages, key: str, status: int) -> None:
    answer = await pages.get("/openapi.json", key=key)
    assert answer.status_code == status
    assert ("paths" in answer.json()) is (status == 200)


async def test_a_fault_is_an_error_of_the_same_shape(pages: Pages) -> None:
    pages.gateway.fault = KeyError("secret")
    answer = await pages.get("/metrics")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "secret" not in answer.text
    assert [(line["status"], line["id"]) for line in pages.gateway.lines] == [(500, answer.headers["x-request-id"])]


async def test_another_method(pages: Pages) -> None:
    for path, allowed in (("/v1/models", "GET"), ("/v1/chat/completions", "POST"), ("/api/v1/embeddings", "POST")):
        answer = await pages.client.request("DELETE", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert answer.json()["error"]["code"] == "method_not_allowed"


async def test_no_redirect_to_another_spelling(pages: Pages) -> None:
    answer = await pages.get("/health/live/")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_path")


async def test_every_answer_has_an_id(pages: Pages) -> None:
    for path in ("/health/live", "/nothing", "/v1/models"):
        options = {"x-request-id": "mine"}
        assert (await pages.get(path, **options)).headers.get_list("x-request-id") == ["mine"]
        assert (await pages.get(path)).headers["x-request-id"].startswith("req_")
