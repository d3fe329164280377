"""Everything that is not inference, on FastAPI: model lists, health, metrics, and what a wrong path is told."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, Protocol

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from gateway.call import ENDPOINTS, Caller
from gateway.config.network import is_loopback
from gateway.config.runtime import Runtime
from gateway.edge.line import headers_of
from gateway.edge.openapi import describe
from gateway.edge.render import error_body, error_headers, request_id
from gateway.edge.visits import Visits
from gateway.errors import GatewayError


class Served(Protocol):
    """What these pages need of the gateway (`wiring.Gateway`)."""

    @property
    def runtime(self) -> Runtime: ...

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller: ...

    def names(self, caller: Caller) -> list[str]: ...

    def unknown(self, name: str, caller: Caller) -> str: ...

    def explain(self, headers: Mapping[bytes, bytes], caller: Caller, raw: bytes) -> dict[str, Any]: ...

    def visited(self, peer: str, headers: Mapping[bytes, bytes], fields: Mapping[str, Any]) -> None: ...

    def is_admin(self, headers: Mapping[bytes, bytes]) -> bool: ...

    def exposition(self) -> tuple[str, bytes]: ...

    def unusable(self) -> Awaitable[dict[str, dict[str, str]]]: ...


def mount(web: FastAPI, gateway: Served) -> None:
    """Add the routes. Access is checked in each of them, never by path."""
    web.add_middleware(Visits, tell=gateway.visited)
    web.router.redirect_slashes = False  # a redirect would name the caller's Host and come before the check of the key
    for prefix in ("/v1", "/api/v1"):
        _models(web, gateway, prefix)
        _route(web, gateway, prefix)
    _health(web, gateway)
    _metrics(web, gateway)
    _document(web, gateway)
    _errors(web, gateway)


def _headers(request: Request) -> Mapping[bytes, bytes]:
    return headers_of(request.scope["headers"])


def _caller(request: Request, gateway: Served) -> Caller:
    """Whoever asks. Raises GatewayError invalid_api_key."""
    caller = gateway.identify(_headers(request))
    request.state.told = {"key": caller.key}
    return caller


def _models(web: FastAPI, gateway: Served, prefix: str) -> None:
    @web.get(f"{prefix}/models", summary="Routes and models that this key may use")
    async def models(request: Request) -> JSONResponse:
        caller = _caller(request, gateway)
        rows = [_row(gateway.runtime, name) for name in gateway.names(caller)]
        return JSONResponse({"object": "list", "data": rows})

    @web.get(f"{prefix}/models/{{model_id:path}}", summary="One route or model")
    async def model(request: Request, model_id: str) -> JSONResponse:
        caller = _caller(request, gateway)
        if model_id not in gateway.names(caller):
            raise GatewayError("model_not_found", gateway.unknown(model_id, caller), param="model")
        return JSONResponse(_row(gateway.runtime, model_id))


def _row(runtime: Runtime, name: str) -> dict[str, Any]:
    """A model object as the OpenAI API has it; a route's context is its default model's."""
    route = runtime.routes.get(name)
    model = runtime.models[route.default if route else name]
    owner = "turnout" if route else model.upstream.name
    return {"id": name, "object": "model", "created": 0, "owned_by": owner, "context": model.context}


def _route(web: FastAPI, gateway: Served, prefix: str) -> None:
    @web.post(f"{prefix}/route", summary="The plan for a request body; nothing is sent")
    async def route(request: Request) -> JSONResponse:
        caller = _caller(request, gateway)
        return JSONResponse(gateway.explain(_headers(request), caller, await _limited(request, gateway)))


async def _limited(request: Request, gateway: Served) -> bytes:
    """A page's request body, up to the same limit as an inference call's."""
    limit = gateway.runtime.gateway.max_body_bytes
    body = b""
    async for part in request.stream():
        body += part
        if limit and len(body) > limit:
            raise GatewayError("body_too_large", f"The request body is larger than {limit / (1 << 20):.4g} MB.")
    return body


_SOON = MappingProxyType({"retry-after": "5", "retry-after-ms": "5000"})


def _health(web: FastAPI, gateway: Served) -> None:
    @web.head("/health/live", include_in_schema=False)
    @web.get("/health/live", summary="The process runs")
    async def live() -> JSONResponse:
        return JSONResponse({"status": "live"})

    @web.get(
        "/health/ready",
        summary="At least one model of each route can be used",
        responses={503: {"description": "What cannot be used, and why"}},
    )
    async def ready() -> JSONResponse:
        missing = await gateway.unusable()
        if missing:
            return JSONResponse({"status": "not ready", "unusable": missing}, 503, _SOON)
        return JSONResponse({"status": "ready", "config": gateway.runtime.digest})


def _metrics(web: FastAPI, gateway: Served) -> None:
    @web.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        settings = gateway.runtime.gateway
        is_open = settings.metrics == "open" or (settings.metrics is None and is_loopback(settings.host))
        if not is_open and not gateway.is_admin(_headers(request)):
            elsewhere = " Without it they are at a port of their own." if isinstance(settings.metrics, int) else ""
            text = f"/metrics needs the admin key (gateway.metrics, gateway.admin_key).{elsewhere}"
            raise GatewayError("invalid_api_key", text)
        content_type, exposed = gateway.exposition()
        return Response(exposed, media_type=content_type)


async def serve_metrics(
    exposition: Callable[[], tuple[str, bytes]], scope: MutableMapping[str, Any], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Answer one request at the port that is for metrics only: no key is asked for there, and nothing else served."""
    headers = [(b"x-request-id", request_id(headers_of(scope["headers"])).encode())]
    if scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD"):
        content_type, body = exposition()
        status, headers = 200, [*headers, (b"content-type", content_type.encode())]
    else:
        text = "This port answers GET /metrics only; the gateway itself is at gateway.port."
        error = GatewayError("unknown_path", text)
        status, body = error.status, error_body(error)
        headers += [*error_headers(error), (b"content-type", b"application/json")]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _document(web: FastAPI, gateway: Served) -> None:
    describe(web)

    @web.get("/openapi.json", include_in_schema=False)
    async def document(request: Request) -> JSONResponse:
        if not gateway.is_admin(_headers(request)):
            _caller(request, gateway)  # whoever has no key need not learn what runs here
        return JSONResponse(web.openapi())


def _errors(web: FastAPI, gateway: Served) -> None:
    @web.exception_handler(GatewayError)
    async def refused(request: Request, error: GatewayError) -> Response:
        headers = {k.decode(): v.decode() for k, v in error_headers(error)}
        request.state.told = {**getattr(request.state, "told", {}), "code": error.code}
        return Response(error_body(error), error.status, headers, "application/json")

    @web.exception_handler(Exception)
    async def failed(request: Request, fault: Exception) -> Response:
        answer = await refused(request, GatewayError("internal_error", "The gateway failed on this request."))
        answer.headers["x-request-id"] = request.state.id  # this handler is outside of `Visits`
        return answer

    @web.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        path, method = request.scope["path"], request.method
        allowed = (error.headers or {}).get("Allow") or ("POST" if path in _INFERENCE else None)
        if allowed is not None:
            answer = await refused(request, GatewayError("method_not_allowed", f"This path answers {allowed} only."))
            answer.headers["allow"] = allowed
            return answer
        try:
            _caller(request, gateway)
        except GatewayError as refusal:
            return await refused(request, refusal)
        return await refused(request, GatewayError("unknown_path", _mistake(method, path)))


_INFERENCE = frozenset(prefix + e.path for e in ENDPOINTS.values() for prefix in ("/v1", "/api/v1"))
_DOUBLED = re.compile(r"(/chat/completions|/completions|/embeddings)\1$")


def _mistake(method: str, path: str) -> str:
    """What is wrong with a path that nothing is served at."""
    if "/v1/v1" in path:
        return "The path holds '/v1' twice: the base URL must end in one '/v1'."
    if _DOUBLED.search(path):
        return "The path holds the endpoint twice: the base URL must end in '/v1', without the endpoint."
    bare = path.removeprefix("/api").rstrip("/")
    if bare in {e.path for e in ENDPOINTS.values()} | {"/models", "/responses", "/messages"}:
        return f"'/v1' is missing before '{bare}': the base URL must end in '/v1'."
    if bare == "/v1" or path.endswith("/"):
        return f"Nothing is served at {method} {path[:200]}: is there a slash too many, or the endpoint missing?"
    return f"Nothing is served at {method} {path[:200]}."
