"""What the tests of refusals have in common."""

from __future__ import annotations

from typing import Any

from tests.fakes import Response, Upstream
from tests.harness import Served

CHAT = "/v1/chat/completions"
KEY = "sk-gateway-key"
KEYS = [{"name": "ci", "key": KEY}]
"""A `keys` section; `BEARER` belongs to it."""
BEARER = {"authorization": f"Bearer {KEY}"}


def openai_error(answer: Response, status: int, code: str | None = None) -> dict[str, Any]:
    """The error object of an answer that must be an OpenAI error with that status (and code)."""
    assert answer.status == status, (answer.status, answer.body[:500])
    assert answer.header("content-type") == "application/json"
    error: dict[str, Any] = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert code is None or error["code"] == code, error
    return error


async def still_well(gw: Served, upstream: Upstream, **headers: str) -> None:
    """The gateway answers the next call, and nothing of what came before reached the upstream."""
    before = upstream.count()
    answer = await gw.chat("still there", headers=headers)
    assert (answer.status, upstream.count()) == (200, before + 1)
    assert not gw.log(level="error")
