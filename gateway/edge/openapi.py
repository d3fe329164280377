"""The OpenAPI document: FastAPI's own, completed by what FastAPI cannot know of: inference, error objects, keys."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from gateway.call import ENDPOINTS, Endpoint


def describe(web: FastAPI) -> None:
    """Complete the application's document, when it is first asked for."""
    generate = web.openapi

    def openapi() -> dict[str, Any]:
        if web.openapi_schema is None:
            _complete(generate())  # which is what FastAPI keeps
        return generate()

    web.openapi = openapi  # type: ignore[method-assign]


def _complete(document: dict[str, Any]) -> None:
    document["info"]["description"] = "Every path below `/v1` answers below `/api/v1` as well."
    pages = {path: item for path, item in document["paths"].items() if not path.startswith("/api/")}
    for path, item in pages.items():
        for operation in item.values():
            operation["responses"].pop("422", None)  # FastAPI's own refusal; no page takes what it could refuse
            if path.startswith(("/v1/", "/metrics", "/admin/")):
                operation["responses"]["4XX"] = _error()
                operation["security"] = _keys()
    document["paths"] = pages | {f"/v1{e.path}": {"post": _operation(e)} for e in ENDPOINTS.values()}
    document["components"] = _components()


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    answer = {"application/json": {"schema": {"type": "object"}}}
    events: dict[str, Any] = {"text/event-stream": {}} if endpoint.streams else {}
    return {
        "summary": f"OpenAI {endpoint.name}; unknown fields travel unchanged",
        "operationId": f"create_{endpoint.name}",
        "security": _keys(),
        "requestBody": {"required": True, "content": {"application/json": {"schema": _request(endpoint)}}},
        "responses": {
            "200": {
                "description": "The upstream's answer; as events where `stream` is true",
                "content": answer | events,
            },
            "4XX": _error(),
            "5XX": _error(),
        },
    }


def _request(endpoint: Endpoint) -> dict[str, Any]:
    """What the gateway itself asks of a body; the rest is between the client and the upstream."""
    usage = {"include_usage": {"type": ["boolean", "null"]}}
    properties = {
        "model": {"type": "string", "minLength": 1, "description": "A route or a model, see /v1/models"},
        "stream": {"type": ["boolean", "null"]},
        "stream_options": {"type": ["object", "null"], "properties": usage},
        "messages": {"type": "array"},
        "input": {"type": ["string", "array"]},
    }
    needed = ["model", *([endpoint.required] if endpoint.required else [])]
    optional = ["stream", "stream_options"] if endpoint.streams else []
    described = {name: properties[name] for name in needed + optional}
    return {"type": "object", "required": needed, "properties": described, "additionalProperties": True}


def _keys() -> list[dict[str, list[str]]]:
    """None, where the configuration has no `keys`; else one in either header."""
    return [{}, {"bearer": []}, {"header": []}]


def _error() -> dict[str, str]:
    return {"$ref": "#/components/responses/Error"}


def _components() -> dict[str, Any]:
    fields = {"message": {"type": "string"}, "type": {"type": ["string", "null"]}, "param": {}, "code": {}}
    inner = {"type": "object", "required": ["message"], "properties": fields}
    schema = {"type": "object", "required": ["error"], "properties": {"error": inner}}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "schemas": {"Error": schema},
        "responses": {"Error": {"description": "An OpenAI error object", "content": content}},
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        },
    }
