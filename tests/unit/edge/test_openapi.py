"""The OpenAPI document says what is true, and nothing of FastAPI's that is not."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI

from gateway.call import ENDPOINTS
from gateway.edge.openapi import describe
from gateway.edge.web import mount
from tests.unit.edge.test_web import stand


@pytest.fixture
def document() -> dict[str, Any]:
    web = FastAPI()
    mount(web, stand())
    return web.openapi()


def test_inference(document: dict[str, Any]) -> None:
    for endpoint in ENDPOINTS.values():
        operation = document["paths"][f"/v1{endpoint.path}"]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert schema["required"] == ["model", *([endpoint.required] if endpoint.required else [])]
        assert ("stream" in schema["properties"]) is endpoint.streams
        assert ("text/event-stream" in operation["responses"]["200"]["content"]) is endpoint.streams
        assert schema["additionalProperties"] is True


def test_each_path_once_and_the_errors_as_they_are(document: dict[str, Any]) -> None:
    assert not [path for path in document["paths"] if path.startswith("/api/")]
    for path, item in document["paths"].items():
        for operation in item.values():
            assert "422" not in operation["responses"]
            assert ("4XX" in operation["responses"]) is not path.startswith("/health")
            assert ("security" in operation) is not path.startswith("/health")
    assert set(document["components"]["schemas"]) == {"Error"}


def test_it_is_made_once() -> None:
    web = FastAPI()
    describe(web)
    assert web.openapi() is web.openapi()
    assert list(web.openapi()["paths"]) == [f"/v1{e.path}" for e in ENDPOINTS.values()]
