"""`/admin/keys`: created keys, by the same rules as `turnout keys`. A secret is in the answer that made it, once."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from gateway.errors import GatewayError
from gateway.ops.access import actor, json_body

T = TypeVar("T")


class Keys(Protocol):
    """What these pages need (`auth.admin.KeyAdmin`); every method raises GatewayError."""

    def list(self, ended: bool) -> Awaitable[list[dict[str, Any]]]: ...

    def get(self, name: str) -> Awaitable[dict[str, Any]]: ...

    def create(self, values: Any, actor: str) -> Awaitable[dict[str, Any]]: ...

    def rotate(self, name: str, overlap_seconds: int, actor: str) -> Awaitable[dict[str, Any]]: ...

    def revoke(self, name: str, actor: str) -> Awaitable[dict[str, Any]]: ...


class Rotation(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a rotation."""

    overlap_seconds: int = msgspec.field(default=86_400)
    """How long the old secret lasts."""

    def __post_init__(self) -> None:
        if not 0 <= self.overlap_seconds <= 366 * 86_400:
            raise ValueError("overlap_seconds must be from 0 to 31622400")


def mount(admin: APIRouter, keys: Keys) -> None:
    """Add the routes to the guarded router."""

    @admin.get("/keys", summary="Created keys; with `all=true` also those that have ended")
    async def listed(request: Request) -> JSONResponse:
        ended = request.query_params.get("all", "") in ("1", "true")
        return _answer({"object": "list", "data": await keys.list(ended)})

    @admin.post(
        "/keys",
        summary="Create a key; its secret is in this answer only",
        status_code=201,
        openapi_extra=_body(required=["name"], **_key()),
    )
    async def created(request: Request) -> JSONResponse:
        return _answer(await keys.create(_read(await json_body(request), dict[str, Any]), actor(request)), 201)

    @admin.post(
        "/keys/{name:path}/rotate",
        summary="A new secret for a key; the old one lasts a while longer",
        openapi_extra=_body(overlap_seconds={"type": "integer", "minimum": 0}),
    )
    async def rotated(request: Request, name: str) -> JSONResponse:
        asked = _read(await json_body(request) or b"{}", Rotation)
        return _answer(await keys.rotate(name, asked.overlap_seconds, actor(request)))

    @admin.get("/keys/{name:path}", summary="One created key")
    async def one(name: str) -> JSONResponse:
        return _answer(await keys.get(name))

    @admin.delete("/keys/{name:path}", summary="Revoke a key, within a second everywhere")
    async def revoked(request: Request, name: str) -> JSONResponse:
        return _answer(await keys.revoke(name, actor(request)))


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:  # which also says what of the body does not fit
        raise GatewayError("invalid_request", f"The body cannot be used: {error}.") from None


def _answer(document: dict[str, Any], status: int = 200) -> JSONResponse:
    return JSONResponse(document, status, {"cache-control": "no-store"})


def _body(required: Sequence[str] = (), **fields: Any) -> dict[str, Any]:
    """For the OpenAPI document."""
    schema = {"type": "object", "required": list(required), "properties": fields, "additionalProperties": False}
    return {"requestBody": {"required": bool(required), "content": {"application/json": {"schema": schema}}}}


def _key() -> dict[str, Any]:
    """What a new key may be given; the rules are those of `routing.yaml`."""
    texts, objects = ("name", "team", "expires"), ("limits", "budget", "metadata")
    models = {"models": {"type": "array", "items": {"type": "string"}}}
    return {n: {"type": "string"} for n in texts} | models | {n: {"type": "object"} for n in objects}
