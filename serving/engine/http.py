"""The few requests that readiness needs, on plain sockets: to an engine on this machine, never through a proxy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """One response. Status 0: nothing or no HTTP came back."""

    status: int
    body: bytes = b""

    def json(self) -> Any:
        """The parsed body; None where it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


async def ask(port: int, path: str, payload: Mapping[str, Any] | None = None, api_key: str | None = None) -> Answer:
    """GET `path` at 127.0.0.1, or POST `payload` to it. It waits as long as the answer takes."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return Answer(0)
    try:
        writer.write(_request(path, payload, api_key))
        return _answer(await reader.read())
    except OSError:
        return Answer(0)
    finally:
        writer.close()


def _request(path: str, payload: Mapping[str, Any] | None, api_key: str | None) -> bytes:
    """HTTP/1.0: the answer then ends with the connection, and needs no framing of its own."""
    body = b"" if payload is None else json.dumps(payload).encode()
    head = [
        f"{'GET' if payload is None else 'POST'} {path} HTTP/1.0",
        "host: 127.0.0.1",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *([f"authorization: Bearer {api_key}"] if api_key else []),
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


def _answer(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    words = head.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return Answer(0)
    return Answer(int(words[1]), body)
