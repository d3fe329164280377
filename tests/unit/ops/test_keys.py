"""`/admin/keys`: which request becomes which change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from gateway.config.runtime import GatewaySettings, Runtime
from gateway.errors import GatewayError
from gateway.ops.access import admin_router
from gateway.ops.keys import mount
from tests.unit.building import a_runtime

BY = "admin API, 127.0.0.1"


class Stand:
    """The gateway, and what is done to its keys."""

    def __init__(self) -> None:
        self.runtime: Runtime = a_runtime(gateway=GatewaySettings(admin_key="admin"))
        self.asked: list[tuple[Any, ...]] = []

    def is_admin(self, headers: Mapping[bytes, bytes]) -> bool:
        return headers.get(b"authorization") == b"Bearer admin"

    async def list(self, ended: bool) -> list[dict[str, Any]]:
        self.asked.append(("list", ended))
        return [{"name": "ci"}]

    async def get(self, name: str) -> dict[str, Any]:
        return self._done("get", name)

    async def create(self, values: Any, actor: str) -> dict[str, Any]:
        return self._done("create", values, actor)

    async def rotate(self, name: str, overlap_seconds: int, actor: str) -> dict[str, Any]:
        return self._done("rotate", name, overlap_seconds, actor)

    async def revoke(self, name: str, actor: str) -> dict[str, Any]:
        return self._done("revoke", name, actor)

    def _done(self, *what: Any) -> dict[str, Any]:
        if what[1] == "taken":
            raise GatewayError("invalid_request", "taken", status=409)
        self.asked.append(what)
        return {"did": what[0]}


async def ask(
    stand: Stand, method: str, path: str, body: bytes | None = None, key: str = "admin"
) -> tuple[int, Any, Mapping[str, str]]:
    web = FastAPI(openapi_url=None)
    admin = admin_router(stand)
    mount(admin, stand)
    web.include_router(admin)

    @web.exception_handler(GatewayError)
    async def refused(request: Request, error: GatewayError) -> JSONResponse:
        return JSONResponse({"code": error.code, "message": error.message}, error.status)

    headers = {"authorization": f"Bearer {key}"} | ({} if body is None else {"content-type": "application/json"})
    transport = httpx2.ASGITransport(web)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        answer = await client.request(method, f"/admin/keys{path}", content=body, headers=headers)
    return answer.status_code, answer.json(), answer.headers


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "asked"),
    [
        ("GET", "", None, 200, ("list", False)),
        ("GET", "?all=true", None, 200, ("list", True)),
        ("GET", "?all=false", None, 200, ("list", False)),
        ("POST", "", b'{"name":"ci"}', 201, ("create", {"name": "ci"}, BY)),
        ("GET", "/ci", None, 200, ("get", "ci")),
        ("GET", "/team/ci", None, 200, ("get", "team/ci")),
        ("GET", "/a%2Fb%3Fc", None, 200, ("get", "a/b?c")),
        ("DELETE", "/ci", None, 200, ("revoke", "ci", BY)),
        ("POST", "/ci/rotate", None, 200, ("rotate", "ci", 86_400, BY)),
        ("POST", "/ci/rotate", b"{}", 200, ("rotate", "ci", 86_400, BY)),
        ("POST", "/team/ci/rotate", b'{"overlap_seconds":0}', 200, ("rotate", "team/ci", 0, BY)),
    ],
)
async def test_requests(method: str, path: str, body: bytes | None, status: int, asked: tuple[Any, ...]) -> None:
    stand = Stand()
    got, document, headers = await ask(stand, method, path, body)
    assert (got, stand.asked) == (status, [asked])
    assert headers["cache-control"] == "no-store"
    assert document == {"object": "list", "data": [{"name": "ci"}]} if asked[0] == "list" else {"did": asked[0]}
    refused, _, _ = await ask(stand, method, path, body, key="other")
    assert (refused, len(stand.asked)) == (401, 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", b""),
        ("", b"{"),
        ("", b"[]"),
        ("", b'"ci"'),
        ("", b"\xff"),
        ("/ci/rotate", b"5"),
        ("/ci/rotate", b'{"overlap_seconds":-1}'),
        ("/ci/rotate", b'{"overlap_seconds":1e9}'),
        ("/ci/rotate", b'{"overlap_seconds":99999999999}'),
        ("/ci/rotate", b'{"overlap_seconds":"1d"}'),
        ("/ci/rotate", b'{"overlap":1}'),
    ],
)
async def test_bodies_that_cannot_be_used(path: str, body: bytes) -> None:
    stand = Stand()
    status, document, _ = await ask(stand, "POST", path, body)
    assert (status, document["code"], stand.asked) == (400, "invalid_request", [])


async def test_refusals_keep_their_status() -> None:
    assert (await ask(Stand(), "GET", "/taken"))[0] == 409
