"""What the wire tests send, and how they read what comes back; nothing here is shared with the gateway."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes import post

CHAT = "/v1/chat/completions"
STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
"""Fields of a streamed call whose client asks for usage, so that every event comes through as it is."""
LIMIT = 15.0
"""Seconds after which a wait has failed."""


def ask(text: str = "hello", **fields: Any) -> bytes:
    """The request of a streamed chat call; keywords replace or add fields."""
    body = {"model": "auto", "messages": [{"role": "user", "content": text}]} | STREAM | fields
    return post(CHAT, body)


def payloads(stream: bytes) -> list[Any]:
    """The data of every event, decoded; `[DONE]` as text. Raises ValueError where an SDK would fail."""
    lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    found = []
    for block in lines.split(b"\n\n"):
        data = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
        if data:
            text = b"\n".join(data).decode()
            found.append(text if text == "[DONE]" else json.loads(text))
    return found


def text_of(stream: bytes) -> str:
    """All content of the first choice."""
    chunks = [p for p in payloads(stream) if isinstance(p, dict) and p.get("choices")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def errors_of(stream: bytes) -> list[Any]:
    """The error objects among the events."""
    return [p["error"] for p in payloads(stream) if isinstance(p, dict) and "error" in p]
