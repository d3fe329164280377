"""Requests that are no calls: every answer has an id, and every request leaves one line in the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import clock
from gateway.edge.line import headers_of
from gateway.edge.render import request_id

Tell = Callable[[str, Mapping[bytes, bytes], Mapping[str, Any]], None]
"""Gets the peer, the request's headers, and the fields of the line."""

_QUIET = ("/health/", "/metrics")
"""Asked by machines every few seconds: only their failures are told."""
_SHOWN = 200
"""Characters of a path that a line repeats."""


class Visits:
    """ASGI middleware around the pages. They find the id in `request.state.id`, and may add to the line in `.told`."""

    def __init__(self, app: ASGIApp, tell: Tell) -> None:
        self._app = app
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, began, status = headers_of(scope["headers"]), clock.now(), 499
        own = request_id(headers)

        async def identified(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = any(name == b"x-request-id" for name, _ in message["headers"])  # by the flow
                message["headers"] = [*message["headers"], *([] if named else [(b"x-request-id", own.encode())])]
            await send(message)

        scope.setdefault("state", {})["id"] = own
        try:
            await self._app(scope, receive, identified)
        except ClientDisconnect:
            pass  # it left within its body
        except Exception:
            status = 500
            raise
        finally:
            if status >= 400 or not scope["path"].startswith(_QUIET):
                line = _line(scope, status) | {"ms": round((clock.now() - began) * 1000, 1)}
                self._tell((scope.get("client") or ("",))[0], headers, line)


def _line(scope: Scope, status: int) -> dict[str, Any]:
    """No query and no header: either may hold a secret."""
    state = scope["state"]
    told = state.get("told", {})
    return {"id": state["id"], "method": scope["method"], "path": shown(scope["path"]), "status": status, **told}


def shown(text: str) -> str:
    """What a caller sent, as a terminal may see it."""
    text = text[:_SHOWN]
    return text if text.isprintable() else text.encode("unicode_escape").decode()
