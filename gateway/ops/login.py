"""`/ops` itself: the page and its files, which hold no secret, and the exchange of the admin key for a cookie."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from fastapi import FastAPI, Request, Response

from gateway.config.runtime import Runtime
from gateway.errors import GatewayError
from gateway.ops.access import joined_headers, json_body, refuse_foreign_pages, refuse_strangers
from gateway.ops.session import COOKIE, SECONDS, Guesses, new_session

PAGE = Path(__file__).with_name("page")
POLICY = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
_HEADERS = MappingProxyType(
    {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
)
_TYPES = MappingProxyType(
    {
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".mjs": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".svg": "image/svg+xml",
        ".png": "image/png",
        ".woff2": "font/woff2",
        ".txt": "text/plain; charset=utf-8",
    }
)
_NAME = re.compile(r"(?:[\w-][\w.-]*/){0,2}[\w-][\w.-]*")


class Entered(Protocol):
    """What these pages need of the gateway (`wiring.Gateway`)."""

    @property
    def runtime(self) -> Runtime: ...

    def address(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The client's address, behind trusted proxies too."""

    def operated(self, action: str, by: str, **fields: Any) -> None:
        """Log what an operator did."""


class Login(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a login."""

    key: str


def mount(web: FastAPI, gateway: Entered, page: Path = PAGE) -> None:
    """Add the routes. `page`: the folder with `index.html` and all that it needs."""
    guesses = Guesses()

    @web.get("/ops", summary="The operations page", include_in_schema=False)
    async def front(request: Request) -> Response:
        _refuse_where_off(gateway, request)
        return _file(request, page / "index.html")

    @web.get("/ops/assets/{name:path}", include_in_schema=False)
    async def asset(request: Request, name: str) -> Response:
        _refuse_where_off(gateway, request)
        if _NAME.fullmatch(name) is None:
            raise GatewayError("unknown_path", "The operations page has no such file.")
        return _file(request, page / name)

    @web.post("/ops/session", status_code=204, include_in_schema=False)
    async def login(request: Request) -> Response:
        _refuse_where_off(gateway, request)
        refuse_foreign_pages(request)
        key = _key(await json_body(request))
        admin_key = gateway.runtime.gateway.admin_key
        if admin_key is None:
            return Response(status_code=204)  # whoever is let in needs no session
        address = gateway.address(request.client.host if request.client else "", joined_headers(request))
        guesses.check(address)
        if not hmac.compare_digest(key.encode(), admin_key.encode()):
            guesses.note(address)
            gateway.operated("login refused", address)
            raise GatewayError("invalid_api_key", "This is not the admin key (gateway.admin_key).")
        session = new_session(admin_key)
        gateway.operated("login", address, session=session.split(".")[1])
        answer = Response(status_code=204, headers={"cache-control": "no-store"})
        _set_cookie(answer, request, session, SECONDS)
        return answer

    @web.delete("/ops/session", status_code=204, include_in_schema=False)
    async def logout(request: Request) -> Response:
        _refuse_where_off(gateway, request)
        refuse_foreign_pages(request)
        answer = Response(status_code=204, headers={"cache-control": "no-store"})
        _set_cookie(answer, request, "", 0)
        return answer


def _refuse_where_off(gateway: Entered, request: Request) -> None:
    settings = gateway.runtime.gateway
    if settings.admin_key is None:
        refuse_strangers(request, settings.host)


def _key(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=Login).key
    except msgspec.DecodeError:  # whose text could repeat the key
        raise GatewayError("invalid_request", 'Send {"key": "the admin key"}.', param="key") from None


def _set_cookie(answer: Response, request: Request, value: str, seconds: int) -> None:
    """Over https it is for https only; a proxy in front of the gateway says so, and a wrong word harms its sender
    only."""
    https = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").strip().lower())
    answer.set_cookie(COOKIE, value, max_age=seconds, path="/", secure=https, httponly=True, samesite="strict")


def _file(request: Request, file: Path) -> Response:
    """A file of the page, or that it is as the browser has it."""
    try:
        content, kind = file.read_bytes(), _TYPES[file.suffix]
    except (OSError, KeyError):
        raise GatewayError("unknown_path", "The operations page has no such file.") from None
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {**_HEADERS, "etag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=kind)
