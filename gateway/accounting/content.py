"""Prompt text of a sampled share of the calls, redacted; off unless TURNOUT_LOG_CONTENT says how large the share is."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.accounting.redact import redacted
from gateway.accounting.row import Content
from gateway.call import Call
from gateway.database import Database

TEXT_BYTES = 64 * 1024
"""Longest text that is kept; the rest is cut off."""
FIELD_BYTES = 1024 * 1024
"""A longer field is left out altogether: it is mostly pictures."""
AT_ONCE = 16
"""Texts under way; further ones are left out, so that they can never pile up."""
PORTION = 1000
"""Old texts that are deleted at once: others who write to the database wait no longer than that takes."""
_DAY_MS = 86_400_000


class Contents:
    """Chooses calls, and makes their text fit to be kept."""

    def __init__(self, share: float, days: float) -> None:
        """`share`: of the calls, 0 to 1; `days`: how long their text is kept."""
        self._share, self._days = share, days
        self._running = 0

    def wants(self, call: Call) -> bool:
        """This call's text is to be kept; decided by its id, so in every process alike."""
        if not self._share:
            return False
        number = int.from_bytes(hashlib.sha256(call.id.encode()).digest()[:8])
        return number < self._share * 2**64 and self._running < AT_ONCE

    async def of(self, call: Call, row_id: str, at_ms: int) -> Content | None:
        """What is kept of a call; None: it has no text. Reads and redacts in a thread."""
        field = next((f for name in ("messages", "prompt", "input") if (f := call.body.field(name))), b"")
        if not 0 < len(field) <= FIELD_BYTES:
            return None
        self._running += 1
        try:
            text = await asyncio.to_thread(_text, field)
        finally:
            self._running -= 1
        return Content(row_id, at_ms, text) if text else None

    async def forget(self, database: Database) -> None:
        """Delete what is older than its time, a portion per transaction. Raises DatabaseDown."""
        from sqlalchemy import text

        old = "SELECT id FROM contents WHERE at_ms < :limit LIMIT :portion"
        values = {"limit": int(time.time() * 1000 - self._days * _DAY_MS), "portion": PORTION}
        deleted = PORTION
        while deleted == PORTION:
            async with database.write() as connection:
                deleted = (await connection.execute(text(f"DELETE FROM contents WHERE id IN ({old})"), values)).rowcount


def _text(field: bytes) -> str:
    whole = "\n\n".join(_parts(msgspec.json.decode(field)))  # the edge has parsed it before
    return _cut(redacted(_cut(whole.replace("\0", ""))))


def _parts(value: Any) -> Iterator[str]:
    """The texts of a prompt, of messages or of content parts; each message begins with its role."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, dict):
        text = "\n".join(_parts(value.get("content") or value.get("text")))
        role = value.get("role")
        if text:
            yield f"{role}: {text}" if isinstance(role, str) else text


def _cut(text: str) -> str:
    return text.encode()[:TEXT_BYTES].decode(errors="ignore")
