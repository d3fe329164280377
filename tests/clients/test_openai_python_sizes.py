"""The official Python SDK with long events, long prompts and long streams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.asking import chunks_of, says, text_of
from tests.clients.conftest import Connect
from tests.conftest import StartGateway
from tests.fakes import DONE, Reply, Sse, Upstream, chunk, completion

MIB = 1 << 20
LONG = "长文本 and text; " * (3 * MIB // 20)
"""3 MiB of UTF-8."""


async def test_an_event_of_3_mb(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    assert len(LONG.encode()) > 3_000_000
    upstream.script(Sse([chunk("", "assistant"), chunk(LONG), chunk("end"), chunk(finish="stop"), DONE]))
    client = sdk(await gateway(upstream))
    chunks = await chunks_of(await client.chat.completions.create(model="auto", messages=says(), stream=True))
    assert [c.choices[0].delta.content for c in chunks] == ["", LONG, "end", None]


async def test_an_answer_of_3_mb(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    upstream.script(Reply(completion(LONG)))
    client = sdk(await gateway(upstream))
    answered = await client.chat.completions.create(model="auto", messages=says())
    assert answered.choices[0].message.content == LONG


@pytest.mark.parametrize("fields", [{}, {"stream": True}], ids=["plain", "streamed"])
async def test_a_prompt_of_20_mb(
    upstream: Upstream, gateway: StartGateway, sdk: Connect, fields: dict[str, Any]
) -> None:
    prompt = "0123456789abcdef" * (20 * MIB // 16)
    upstream.script(Sse([chunk("read"), chunk(finish="stop"), DONE]) if fields else Reply(completion("read")))
    client = sdk(await gateway(upstream))
    answered = await client.chat.completions.create(model="auto", messages=says(prompt), **fields)
    text = text_of(await chunks_of(answered)) if fields else answered.choices[0].message.content
    assert text == "read"
    assert (await upstream.call()).json()["messages"] == says(prompt)


async def test_a_stream_of_2000_events(upstream: Upstream, gateway: StartGateway, sdk: Connect) -> None:
    words = [f"{number} " for number in range(2000)]
    upstream.script(Sse([b"".join(map(chunk, words[n : n + 100])) for n in range(0, 2000, 100)] + [DONE]))
    client = sdk(await gateway(upstream))
    chunks = await chunks_of(await client.chat.completions.create(model="auto", messages=says(), stream=True))
    assert [c.choices[0].delta.content for c in chunks] == words
