"""The line that a request beside inference leaves, asked through ASGI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.edge.visits import Visits, shown

Lines = list[tuple[str, Mapping[bytes, bytes], Mapping[str, Any]]]


async def page(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    request.state.told = {"key": "ci"}
    await request.body()
    if scope["path"].endswith("/fault"):
        raise KeyError
    await PlainTextResponse(request.state.id, 404 if scope["path"].endswith("/none") else 200)(scope, receive, send)


async def visit(lines: Lines, path: str, **options: Any) -> httpx2.Response:
    app: ASGIApp = Visits(page, lambda *line: lines.append(line))
    transport = httpx2.ASGITransport(app, client=("192.0.2.1", 5))
    async with httpx2.AsyncClient(transport=transport, base_url="http://t") as client:
        return await client.request("POST", path, **options)


async def test_a_line_and_an_id() -> None:
    lines: Lines = []
    answer = await visit(lines, "/v1/models?key=secret", headers={"x-api-key": "secret", "x-forwarded-for": "1.1.1.1"})
    ((peer, headers, line),) = lines
    assert (peer, headers[b"x-forwarded-for"]) == ("192.0.2.1", b"1.1.1.1")
    assert answer.headers["x-request-id"] == answer.text == line["id"]
    assert 0 <= line["ms"] < 60_000
    known = {"method": "POST", "path": "/v1/models", "status": 200, "key": "ci"}
    assert line == {"id": answer.text, "ms": line["ms"]} | known


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/health/ready", []),
        ("/metrics", []),
        ("/health/none", [404]),
        ("/metrics/none", [404]),
        ("/none", [404]),
        ("/healthy", [200]),
    ],
)
async def test_what_machines_ask_is_told_when_it_fails(path: str, statuses: list[int]) -> None:
    lines: Lines = []
    await visit(lines, path)
    assert [line["status"] for _, _, line in lines] == statuses


async def test_a_fault_is_told_and_raised() -> None:
    lines: Lines = []
    with pytest.raises(KeyError):
        await visit(lines, "/fault")
    assert [line["status"] for _, _, line in lines] == [500]


async def test_a_caller_that_leaves_within_its_body() -> None:
    lines: Lines = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        raise AssertionError(message)

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/route", "headers": [], "client": None}
    await Visits(page, lambda *line: lines.append(line))(scope, receive, send)
    assert [(peer, line["status"]) for peer, _, line in lines] == [("", 499)]


async def test_what_is_no_request_passes() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def never() -> Any: ...

    lines: Lines = []
    await Visits(app, lambda *line: lines.append(line))({"type": "lifespan"}, never, lambda message: never())
    assert (seen, lines) == ([{"type": "lifespan"}], [])


def test_no_path_moves_a_terminal() -> None:
    assert shown("/v1/模型") == "/v1/模型"
    assert shown("/\x1b[2J\n") == "/\\x1b[2J\\n"
    assert len(shown("x" * 5000)) == 200
