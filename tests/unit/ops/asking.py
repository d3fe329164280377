"""Pages of the admin API, asked without a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import httpx2
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse

from gateway.config.runtime import GatewaySettings, Runtime
from gateway.errors import GatewayError
from gateway.ops.access import admin_router
from tests.unit.building import a_runtime

KEY = "sk-admin-key"
BY = "admin API, 127.0.0.1"


class Stand:
    """What every page needs of the gateway: an admin key, and a log of what is done."""

    def __init__(self, **settings: Any) -> None:
        self.runtime: Runtime = a_runtime(gateway=GatewaySettings(**{"admin_key": KEY, **settings}))
        self.done: list[tuple[Any, ...]] = []

    def is_admin(self, headers: Mapping[bytes, bytes]) -> bool:
        return headers.get(b"x-api-key") == KEY.encode()

    def address(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        return headers.get(b"x-forwarded-for", peer.encode()).decode()

    def operated(self, action: str, by: str, **fields: Any) -> None:
        self.done.append((action, by, fields))


class Site:
    """Some pages of the gateway."""

    def __init__(
        self,
        stand: Stand,
        admin_pages: Callable[[APIRouter], None] = lambda admin: None,
        pages: Callable[[FastAPI], None] = lambda web: None,
    ) -> None:
        self._web = FastAPI(openapi_url=None)
        admin = admin_router(stand)
        admin_pages(admin)
        pages(self._web)
        self._web.include_router(admin)

        @self._web.exception_handler(GatewayError)
        async def refused(request: Request, error: GatewayError) -> JSONResponse:
            document = {"code": error.code, "message": error.message, "param": error.param}
            return JSONResponse(document, error.status)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """One request with the admin key (header `x_api_key` replaces it)."""
        sent = {"x-api-key": KEY} | {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            sent = {"content-type": "application/json"} | sent
        transport = httpx2.ASGITransport(self._web)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            content = body if body is None or isinstance(body, bytes) else None
            return await client.request(
                method, path, content=content, json=None if content is not None else body, headers=sent
            )
