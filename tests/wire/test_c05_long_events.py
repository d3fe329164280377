"""C05: characters cut between packets, very long events, and one that never ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import DONE, Reply, Send, Sse, Upstream, answer, chunk, completion, sends, split
from tests.harness import config_for
from tests.wire.calls import LIMIT, STREAM, errors_of, payloads, text_of

ENDLESS = [b"x" * 1_000_000] * 40
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


async def test_c05_characters_cut_anywhere(upstream: Upstream, gateway: StartGateway) -> None:
    events = answer("你好🦀", "é\u2028\x85", usage=(3, 2))
    upstream.script(Send(SSE_HEAD), *sends(b"".join(events), 1))
    gw = await gateway(upstream)
    assert (await gw.chat(**STREAM)).body == b"".join(events)


@pytest.mark.parametrize("stream", [STREAM, {"stream": True}], ids=["usage wanted", "usage hidden"])
async def test_c05_a_line_of_3_mb(upstream: Upstream, gateway: StartGateway, stream: dict[str, Any]) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "你" * 1_000_000}}
    events = [chunk("", "assistant"), chunk(tool_calls=[call]), chunk(finish="tool_calls"), DONE]
    upstream.script(Sse(split(b"".join(events), 1000), separate=False))
    gw = await gateway(upstream)
    assert (await gw.chat(**stream)).body == b"".join(events)


async def test_c05_an_endless_line_ends_at_the_cap(upstream: Upstream, gateway: StartGateway) -> None:
    """After the commit point: what came before, one error event, and the upstream is told to stop."""
    upstream.script(Sse([chunk("Hel"), b"data: ", *ENDLESS], separate=False))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT):
        answered = await gw.chat(**STREAM)
        await (await upstream.call()).closed.wait()
    assert text_of(answered.body) == "Hel"
    assert [e["code"] for e in errors_of(answered.body)] == ["upstream_bad_response"]
    assert "16 MB" in errors_of(answered.body)[0]["message"]
    assert payloads(answered.body)[-1] != "[DONE]"
    assert len(answered.body) < 10_000
    assert gw.calls()[0]["outcome"] == "upstream_bad_response"


async def test_c05_an_endless_line_before_any_content_lets_the_next_model_answer(
    upstream: Upstream, second: Upstream, gateway: StartGateway
) -> None:
    upstream.script(Sse([chunk("", "assistant"), b"data: ", *ENDLESS], separate=False))
    gw = await gateway(config_for(upstream, second))
    async with asyncio.timeout(LIMIT):
        answered = await gw.chat("hello", **STREAM)
        await (await upstream.call()).closed.wait()
    assert text_of(answered.body) == "hello"


async def test_c05_endless_blanks_are_no_answer(upstream: Upstream, second: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse([b"\n" * 1_000_000] * 40, separate=False))
    gw = await gateway(config_for(upstream, second))
    async with asyncio.timeout(LIMIT):
        answered = await gw.chat("hello", **STREAM)
        await (await upstream.call()).closed.wait()
    assert text_of(answered.body) == "hello"


async def test_c05_a_plain_answer_of_20_mb(upstream: Upstream, gateway: StartGateway) -> None:
    """Over the cap it is no longer judged, and passes as it is."""
    body = completion("你" * 7_000_000)
    upstream.script(Reply(split(body, 100_000), framing="chunked", separate=False))
    gw = await gateway(upstream)
    assert (await gw.chat()).body == body
