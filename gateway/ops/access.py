"""Who may use `/admin`: one dependency in front of every path below it, and nothing there without it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from gateway.config.network import is_loopback
from gateway.config.runtime import Runtime
from gateway.errors import GatewayError
from gateway.ops.session import COOKIE, session_of

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/?#@\[\]]+)(:\d{1,5})?", re.IGNORECASE)
_PASSED_ON = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""What proxies add: whoever comes by one is not on this machine."""
OWN_HEADER = "x-turnout-ops"
"""What no page of another origin can send along without being asked first whether it may."""
MAX_BODY = 64 * 1024


class Administered(Protocol):
    """What the check needs of the gateway (`wiring.Gateway`)."""

    @property
    def runtime(self) -> Runtime: ...

    def is_admin(self, headers: Mapping[bytes, bytes]) -> bool: ...


def admin_router(gateway: Administered) -> APIRouter:
    """The router of all that is below `/admin`."""

    async def guard(request: Request) -> None:
        welcome(gateway, request)

    return APIRouter(prefix="/admin", dependencies=[Depends(guard)])


def welcome(gateway: Administered, request: Request) -> None:
    """Let administrators in: by the admin key or by a session of the operations page; where there is no key, this
    machine. Raises GatewayError."""
    refuse_foreign_pages(request)
    key = gateway.runtime.gateway.admin_key
    if key is None:
        refuse_strangers(request, gateway.runtime.gateway.host)
        return
    if not gateway.is_admin(joined_headers(request)):
        request.state.session = _session(key, request)
    request.state.told = {"key": "(admin)"}


def _session(key: str, request: Request) -> str:
    session = session_of(key, request.cookies.get(COOKIE, ""))
    if session is None:
        raise GatewayError("invalid_api_key", "/admin needs the admin key (gateway.admin_key).")
    if request.method not in ("GET", "HEAD") and request.headers.get(OWN_HEADER) != "1":
        text = f"With the operations page's cookie, changes need the header '{OWN_HEADER}: 1' as well."
        raise GatewayError("invalid_request", text, status=403)
    return session


def nothing_else(admin: APIRouter) -> None:
    """Whatever has no route yet is unknown, and only to those who are let in. Comes after all other routes."""

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

    @admin.api_route("", methods=methods, include_in_schema=False)
    async def bare(request: Request) -> None:
        text = f"Nothing is served at {request.method} /admin itself: try /admin/state, or /ops for the page."
        raise GatewayError("unknown_path", text)

    @admin.api_route("/{rest:path}", methods=methods, include_in_schema=False)
    async def unknown(request: Request, rest: str) -> None:
        raise GatewayError("unknown_path", f"Nothing is served at {request.method} /admin/{rest[:200]}.")


def refuse_foreign_pages(request: Request) -> None:
    """No page of another origin may call, whether or not it could read the answer. Raises GatewayError."""
    host, origin = request.headers.get("host", "").lower(), request.headers.get("origin")
    own = origin is None or origin.lower() in (f"http://{host}", f"https://{host}")
    if not own or request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise GatewayError("invalid_request", "/admin takes no calls from web pages of other origins.", status=403)


def refuse_strangers(request: Request, listens_at: str) -> None:
    """Without an admin key only this machine is served. Raises GatewayError.

    A name of another machine in `Host` is a web page whose name was made to lead here (DNS rebinding), or came by a
    proxy."""
    if not is_loopback(listens_at):
        raise GatewayError("unknown_path", "/admin is off: it needs gateway.admin_key where others can reach it.")
    host = request.headers.get("host")
    named = None if host is None else _HOST.fullmatch(host)
    if (host is not None and (named is None or not is_loopback(named[1]))) or any(
        name in request.headers for name in _PASSED_ON
    ):
        text = "Without gateway.admin_key, /admin is for this machine only: call it directly, at a loopback address."
        raise GatewayError("invalid_request", text, status=403)


async def json_body(request: Request, most: int = MAX_BODY) -> bytes:
    """The request's body, b"" if there is none; `most` bytes, 0: any. Raises GatewayError unless it is
    `application/json`."""
    body = b""
    async for part in request.stream():
        body += part
        if most and len(body) > most:
            raise GatewayError("body_too_large", f"The request body is larger than {most >> 10} KB.")
    kind = request.headers.get("content-type")
    if (body or kind is not None) and (kind or "").partition(";")[0].strip().lower() != "application/json":
        raise GatewayError("unsupported_media_type", "Send the body as 'content-type: application/json'.")
    return body


def answered(document: Any) -> JSONResponse:
    """An answer that nothing in between may keep."""
    return JSONResponse(document, headers={"cache-control": "no-store"})


def actor(request: Request) -> str:
    """Who it is, for the audit."""
    session = getattr(request.state, "session", None)
    where = request.client.host if request.client else "unknown address"
    return f"operations page, session {session}, {where}" if session else f"admin API, {where}"


def joined_headers(request: Request) -> Mapping[bytes, bytes]:
    """Values of a repeated header are joined: no check sees only one of them."""
    joined: dict[bytes, bytes] = {}
    for name, value in request.headers.raw:
        joined[name] = joined[name] + b", " + value if name in joined else value
    return joined
