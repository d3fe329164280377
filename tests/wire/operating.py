"""What the tests of the operations page have in common."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from tests.fakes import Response
from tests.harness import Gateway, LocalGateway

KEY = "sk-admin-key-of-operations"
ADMIN = {"x-api-key": KEY}
SETTINGS: dict[str, Any] = {"admin_key": KEY}


async def admin(gw: LocalGateway | Gateway, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
    """GET, or POST with a body, as the admin (unless other headers are given)."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()} or ADMIN
    answer = await gw.fetch(f"/admin/{path}", body, headers=sent)
    assert answer.status == status, answer
    return answer.json()


async def login(gw: LocalGateway | Gateway) -> dict[str, str]:
    """The headers of the operations page with its session."""
    answer = await gw.fetch("/ops/session", {"key": KEY})
    assert answer.status == 204
    cookie = (answer.header("set-cookie") or "").partition(";")[0]
    return {"cookie": cookie, "x-turnout-ops": "1"}


async def events_of(answer: Response) -> AsyncIterator[dict[str, Any]]:
    """The snapshots, as a browser's EventSource has them."""
    data = b""
    async for piece in answer.pieces():
        data += piece.data
        while b"\n\n" in data:
            event, _, data = data.partition(b"\n\n")
            assert event.startswith(b"event: state\ndata: ")
            yield json.loads(event.partition(b"data: ")[2])
