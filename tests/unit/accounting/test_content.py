"""Which calls' text is kept, and what of it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from sqlalchemy import text

from gateway.accounting import content
from gateway.accounting.content import FIELD_BYTES, TEXT_BYTES, Contents
from gateway.database import Database
from tests.unit.accounting.rows import ids
from tests.unit.building import a_call

pytestmark = pytest.mark.usefixtures("tables_here")


async def kept(body: dict[str, Any], endpoint: str = "chat") -> str | None:
    call = a_call(json.dumps(body).encode(), endpoint=endpoint)
    content = await Contents(1.0, 30).of(call, "row", 5)
    return content.prompt if content else None


def test_the_share_is_chosen_by_id_alone() -> None:
    calls = [a_call() for _ in range(2000)]
    for number, call in enumerate(calls):
        call.id = f"req_{number}"
    quarter = {c.id for c in calls if Contents(0.25, 1).wants(c)}
    assert 400 < len(quarter) < 600
    assert quarter <= {c.id for c in calls if Contents(0.5, 1).wants(c)}
    assert not any(Contents(0.0, 1).wants(c) for c in calls)
    assert all(Contents(1.0, 1).wants(c) for c in calls)


async def test_messages_with_their_roles() -> None:
    parts = [{"type": "text", "text": "two"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    messages = [{"role": "system", "content": "one"}, {"role": "user", "content": parts}, {"role": "assistant"}]
    assert await kept({"model": "auto", "messages": messages}) == "system: one\n\nuser: two"


async def test_prompts_and_inputs() -> None:
    assert await kept({"model": "m0", "prompt": ["one", "two"]}, "completions") == "one\n\ntwo"
    assert await kept({"model": "m0", "input": "text"}, "embeddings") == "text"


async def test_secrets_are_out_before_anything_is_written() -> None:
    assert await kept({"model": "m0", "prompt": "mail me@example.com"}, "completions") == "mail [email]"


async def test_a_long_text_is_cut() -> None:
    text = await kept({"model": "m0", "prompt": "长" * 100_000}, "completions")
    assert text is not None
    assert TEXT_BYTES - 3 <= len(text.encode()) <= TEXT_BYTES
    assert text == "长" * len(text)


@pytest.mark.parametrize("prompt", ["", [1, 2, 3], "x" * FIELD_BYTES, "\0"])
async def test_nothing_to_keep(prompt: Any) -> None:
    assert await kept({"model": "m0", "prompt": prompt}, "completions") is None


async def test_a_text_deep_inside() -> None:
    messages = b"[" * 900 + b'"x"' + b"]" * 900
    content = await Contents(1.0, 30).of(a_call(b'{"model":"auto","messages":%b}' % messages), "row", 5)
    assert content is not None
    assert content.prompt == "x"


async def test_texts_cannot_pile_up() -> None:
    contents = Contents(1.0, 30)
    running = [contents.of(a_call(b'{"model":"m","messages":[{"content":"x"}]}'), str(n), 5) for n in range(16)]
    for one in running:
        one.send(None)  # begun, and waiting for its thread
    assert not contents.wants(a_call())
    for one in running:
        one.close()
    assert contents.wants(a_call())


@pytest.mark.parametrize("old", [0, 3, 4, 7])
async def test_old_texts_are_deleted_a_portion_at_a_time(
    database: Database, monkeypatch: pytest.MonkeyPatch, old: int
) -> None:
    monkeypatch.setattr(content, "PORTION", 3)
    async with database.write() as connection:
        for number in range(old):
            await connection.execute(text(f"INSERT INTO contents (id, at_ms, prompt) VALUES ('old{number}', 1, 'x')"))
        now = int(time.time() * 1000)
        await connection.execute(text(f"INSERT INTO contents (id, at_ms, prompt) VALUES ('new', {now}, 'x')"))
    await Contents(1.0, 30).forget(database)
    assert await ids(database, "contents") == ["new"]
