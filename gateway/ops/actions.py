"""What operators do: close a model, drain a replica, change a split, reload, ask for a plan, try a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gateway.changes import ASKED, unfit
from gateway.config.reload import Reloads
from gateway.config.runtime import Runtime, Target
from gateway.database import DatabaseDown
from gateway.errors import GatewayError
from gateway.ops.access import actor, answered, joined_headers, json_body

T = TypeVar("T")

Answer = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
"""Runs a chat call on an ASGI scope and answers it there."""


class Changing(Protocol):
    """The changes at run time (`overrides.Overrides`); every method raises DatabaseDown."""

    def close_model(self, name: str, closed: bool, reason: str, by: str) -> Awaitable[None]: ...

    def drain(self, upstream: str, target: Target, drained: bool, by: str) -> Awaitable[None]: ...

    def move_traffic(self, model: str, kind: str, reason: str | None, by: str) -> Awaitable[None]: ...

    def restarting(self, upstream: str, state: str | None, by: str) -> Awaitable[None]: ...

    def set_arms(self, experiment: str, arms: Mapping[str, float] | None, by: str) -> Awaitable[None]: ...

    def ask_reload(self, by: str, detail: dict[str, Any]) -> Awaitable[None]: ...


class Operated(Protocol):
    """What the actions need of the gateway (`wiring.Gateway`)."""

    @property
    def runtime(self) -> Runtime:
        """The configuration in force."""

    @property
    def written(self) -> Runtime:
        """The same as its file says."""

    @property
    def overrides(self) -> Changing: ...

    @property
    def reloads(self) -> Reloads: ...

    def planned(self, headers: Mapping[bytes, bytes], raw: bytes) -> dict[str, Any]:
        """The plan for an operator's own call, nothing sent. Raises GatewayError where the call would."""

    def operated(self, action: str, by: str, **fields: Any) -> None:
        """Log what an operator did."""


class Closing(msgspec.Struct, forbid_unknown_fields=True):
    """The body that closes or opens a model."""

    closed: bool
    reason: str = ""

    def __post_init__(self) -> None:
        _one_line(self.reason)


def _one_line(reason: str) -> None:
    if len(reason) > 500 or not reason.isprintable():
        raise ValueError("reason must be one line of at most 500 characters")


class Draining(msgspec.Struct, forbid_unknown_fields=True):
    """The body that drains a replica or takes it back."""

    drained: bool


class Moving(msgspec.Struct, forbid_unknown_fields=True):
    """The body that sends a model's calls of one kind to the next model, or takes them back."""

    kind: Literal["tool", "json"]
    moved: bool
    reason: str = ""

    def __post_init__(self) -> None:
        _one_line(self.reason)


class Splitting(msgspec.Struct, forbid_unknown_fields=True):
    """The body that gives an experiment other weights; None: those of the file."""

    arms: dict[str, float] | None

    def __post_init__(self) -> None:
        weights = (self.arms or {}).values()
        if self.arms == {}:
            raise ValueError("arms must name a model at least; null: as the file says")
        if not all(0 <= weight <= 1e9 for weight in weights):
            raise ValueError("weights must be numbers from 0 to 1e9")


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """An empty body."""


def mount(admin: APIRouter, gateway: Operated, answer: Answer) -> None:
    """Add the routes to the guarded router."""
    _traffic(admin, gateway)
    _models(admin, gateway)
    _restart(admin, gateway)
    _replicas(admin, gateway)
    _experiments(admin, gateway)
    _reload(admin, gateway)
    _trying(admin, gateway, answer)


def _models(admin: APIRouter, gateway: Operated) -> None:
    @admin.post(
        "/models/{name:path}",
        summary="Close a model: it is never tried, within a second everywhere; or open it again",
        openapi_extra=_body(["closed"], closed={"type": "boolean"}, reason={"type": "string"}),
    )
    async def close(request: Request, name: str) -> JSONResponse:
        asked = _read(await json_body(request), Closing)
        if asked.closed:
            _known("model", name, gateway.written.models)
        await _done(gateway.overrides.close_model(name, asked.closed, asked.reason, actor(request)))
        return answered({"name": name, "closed": asked.closed, "reason": asked.reason if asked.closed else None})


def _traffic(admin: APIRouter, gateway: Operated) -> None:
    @admin.post(
        "/models/{name:path}/traffic",
        summary="Send a model's tool or JSON calls to the next model of their route, or take them back",
        openapi_extra=_body(
            ["kind", "moved"],
            kind={"enum": ["tool", "json"]},
            moved={"type": "boolean"},
            reason={"type": "string"},
        ),
    )
    async def move(request: Request, name: str) -> JSONResponse:
        asked = _read(await json_body(request), Moving)
        if asked.moved:
            _known("model", name, gateway.written.models)
        reason = (asked.reason or "its operator has moved them") if asked.moved else None
        await _done(gateway.overrides.move_traffic(name, asked.kind, reason, actor(request)))
        return answered({"name": name, "kind": asked.kind, "moved": asked.moved, "reason": reason})


def _restart(admin: APIRouter, gateway: Operated) -> None:
    @admin.post(
        "/upstreams/{name:path}/restart",
        summary="Ask whoever runs an engine for a rolling restart: each replica's successor is ready before it ends",
        openapi_extra=_body([]),
    )
    async def restart(request: Request, name: str) -> JSONResponse:
        _read(await json_body(request) or b"{}", Nothing)
        if _known("upstream", name, gateway.written.upstreams).engine is None:
            text = f"Upstream '{name}' has no engine that Turnout runs."
            raise GatewayError("invalid_request", text, param="name")
        await _done(gateway.overrides.restarting(name, ASKED, actor(request)))
        return answered({"upstream": name, "restarting": True})


def _replicas(admin: APIRouter, gateway: Operated) -> None:
    @admin.post(
        "/upstreams/{name:path}/replicas/{index}",
        summary="Drain a replica: no new calls, within a second everywhere; or take it back",
        openapi_extra=_body(["drained"], drained={"type": "boolean"}),
    )
    async def drain(request: Request, name: str, index: str) -> JSONResponse:
        asked = _read(await json_body(request), Draining)
        targets = _known("upstream", name, gateway.written.upstreams).targets
        if not (index.isascii() and index.isdigit() and int(index[:6]) < len(targets)):
            text = f"Upstream '{name}' has {len(targets)} replicas, counted from 0; there is none with this number."
            raise GatewayError("unknown_path", text, param="index")
        await _done(gateway.overrides.drain(name, targets[int(index)], asked.drained, actor(request)))
        return answered({"upstream": name, "index": int(index), "drained": asked.drained})


def _experiments(admin: APIRouter, gateway: Operated) -> None:
    weights = {"type": ["object", "null"], "additionalProperties": {"type": "number", "minimum": 0}}

    @admin.post(
        "/experiments/{name:path}",
        summary="Give an experiment other weights, within a second everywhere; null: those of the file",
        openapi_extra=_body(["arms"], arms=weights),
    )
    async def split(request: Request, name: str) -> JSONResponse:
        asked = _read(await json_body(request), Splitting)
        if asked.arms is not None:
            _known("experiment", name, gateway.written.experiments)
            if (why := unfit(asked.arms, gateway.written)) is not None:
                raise GatewayError("invalid_request", f"arms: {why}.", param="arms")
        await _done(gateway.overrides.set_arms(name, asked.arms, actor(request)))
        there = gateway.runtime.experiments.get(name)
        arms = dict(there.arms) if there is not None else None
        return answered({"name": name, "arms": arms, "overridden": asked.arms is not None})


def _reload(admin: APIRouter, gateway: Operated) -> None:
    @admin.post("/reload", summary="Read the configuration file again, in every process", openapi_extra=_body([]))
    async def reload(request: Request) -> JSONResponse:
        _read(await json_body(request) or b"{}", Nothing)
        try:
            result, problems = await gateway.reloads.ask()
        except TimeoutError:
            text = "The file has not been read in time; a process that reads it slowly may still take it over."
            raise GatewayError("internal_error", text, status=503, retry_after=5) from None
        gateway.operated("reload", actor(request), result=result)
        with suppress(DatabaseDown):  # which does not keep a file from being read
            await gateway.overrides.ask_reload(actor(request), {"result": result})
        return answered({"result": result, "problems": problems})


def _trying(admin: APIRouter, gateway: Operated, answer: Answer) -> None:
    body = _body([], model={"type": "string"}, messages={"type": "array"}, open_ended=True)

    @admin.post("/route", summary="The plan for a request body, nothing sent", openapi_extra=body)
    async def route(request: Request) -> JSONResponse:
        raw = await json_body(request, gateway.runtime.gateway.max_body_bytes)
        return answered(gateway.planned(joined_headers(request), raw))

    @admin.post("/try", summary="Answer a chat body as the caller `ops`", include_in_schema=False)
    async def tried(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise GatewayError("unsupported_media_type", "Send the body as 'content-type: application/json'.")
        gateway.operated("try", actor(request), id=request.state.id)
        return _Tried(answer, request.state.id)


class _Tried(Response):
    """An answer that the flow gives."""

    def __init__(self, answer: Answer, request_id: str) -> None:
        super().__init__()
        self._answer, self._id = answer, request_id.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Under the id that the log has already; whoever the operator is, is not the flow's to know."""
        hidden = (b"x-request-id", b"authorization", b"x-api-key", b"cookie", b"origin")
        headers = [(name, value) for name, value in scope["headers"] if name not in hidden]
        await self._answer({**scope, "headers": [*headers, (b"x-request-id", self._id)]}, receive, send)


def _known(kind: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        text = f"The file has no {kind} '{name[:100]}'; it has: {', '.join(known)[:500] or 'none'}."
        raise GatewayError("model_not_found" if kind == "model" else "unknown_path", text, param="name")
    return known[name]


async def _done(change: Awaitable[None]) -> None:
    try:
        await change
    except DatabaseDown:
        text = "The gateway's database does not answer: nothing can be changed now; what was changed before holds."
        raise GatewayError("database_unavailable", text, retry_after=5) from None


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:  # which also says what of the body does not fit
        raise GatewayError("invalid_request", f"The body cannot be used: {error}.") from None


def _body(required: list[str], open_ended: bool = False, **fields: Any) -> dict[str, Any]:
    """For the OpenAPI document."""
    schema = {"type": "object", "required": required, "properties": fields, "additionalProperties": open_ended}
    return {"requestBody": {"required": bool(required), "content": {"application/json": {"schema": schema}}}}
