"""The OpenAPI document: FastAPI's own, completed by what FastAPI cannot know of: inference, error objects, keys."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from gateway.call import ENDPOINTS, Endpoint

Schema = dict[str, Any]


def describe(web: FastAPI) -> None:
    """Complete the application's document when it is first asked for."""
    generate = web.openapi

    def openapi() -> dict[str, Any]:
        if web.openapi_schema is None:
            web.openapi_schema = _complete(generate())
        return web.openapi_schema

    web.openapi = openapi  # type: ignore[method-assign]


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    document["info"]["description"] = "Every path below `/v1` is also served below `/api/v1`. Any other error is one, too."
    pages = {path: item for path, item in document["paths"].items() if not path.startswith("/api/")}
    for path, item in pages.items():
        for operation in item.values():
            answers = operation["responses"]
            answers.pop("422", None)  # no page has a parameter that could be wrong in FastAPI's own way
            if path.startswith(("/v1/", "/metrics")):
                answers["4XX"] = _reference("responses", "Error")
                operation["security"] = _KEYS
    inference = {f"/v1{e.path}": {"post": _operation(e)} for e in ENDPOINTS.values()}
    document["paths"] = pages | inference
    document["components"] = _components()
    return document


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    answers = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {"schema": {"type": "string"}}}
    error = _reference("responses", "Error")
    return {
        "summary": f"OpenAI {endpoint.name}; unknown fields travel unchanged",
        "operationId": f"create_{endpoint.name}",
        "security": _KEYS,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _request(endpoint)}}},
        "responses": {
            "200": {"description": "The upstream's answer; events if `stream` is true", "content": answers},
            "4XX": error,
            "5XX": error,
        },
    }


def _request(endpoint: Endpoint) -> Schema:
    """What the gateway itself asks of a body; the rest is between client and upstream."""
    own = {name: schema for name, schema in _FIELDS.items() if name == endpoint.required}
    needed = ["model", *([endpoint.required] if endpoint.required else [])]
    return {"type": "object", "required": needed, "properties": _COMMON | own, "additionalProperties": True}


def _reference(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _components() -> dict[str, Any]:
    content = {"application/json": {"schema": _reference("schemas", "Error")}}
    return {
        "schemas": {"Error": _ERROR},
        "responses": {"Error": {"description": "An OpenAI error object", "content": content}},
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        },
    }


_KEYS: list[dict[str, list[str]]] = [{}, {"bearer": []}, {"header": []}]
"""None, where the configuration has no `keys`."""
_COMMON: Schema = {
    "model": {"type": "string", "minLength": 1, "description": "A route or a model, see /v1/models"},
    "stream": {"type": ["boolean", "null"]},
    "stream_options": {
        "type": ["object", "null"],
        "properties": {"include_usage": {"type": ["boolean", "null"]}},
    },
}
_FIELDS: Schema = {
    "messages": {"type": "array", "items": {"type": "object"}},
    "input": {"anyOf": [{"type": "string"}, {"type": "array"}]},
}
_ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": ["string", "null"]},
                "param": {},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}
