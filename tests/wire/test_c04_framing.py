"""C04: comments, every line end, `data:` without a space."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import StartGateway
from tests.fakes import DONE, Reply, Sse, Upstream, WaitFor, answer, chunk, sends, split
from tests.wire.calls import LIMIT, STREAM, ask, payloads, text_of

ONE, TWO = chunk("Hel")[6:-2], chunk("lo", finish="stop")[6:-2]
CRLF_PIECES = [
    b": OPENROUTER PROCESSING\r\n\r\n",
    b":\r\n",
    b"data:" + ONE + b"\r",
    b"\n\r\n",
    b"data: " + TWO + b"\r\n\r\n",
    b"data: [DONE]\r\n\r\n",
]
STREAMS = {
    "crlf": b"".join(CRLF_PIECES),
    "cr": b": a\r\rdata:" + ONE + b"\r\rdata: " + TWO + b"\r\rdata: [DONE]\r\r",
    "lf": b":\n\ndata:" + ONE + b"\n\ndata: " + TWO + b"\n\ndata: [DONE]\n\n",
    "mixed": b": a\r\n\ndata:" + ONE + b"\n\r\ndata: " + TWO + b"\r\rdata: [DONE]\n\n",
    "with other fields": b"event: x\nid: 7\nretry: 3\ndata:" + ONE + b"\n\nid\ndata: " + TWO + b"\n\ndata: [DONE]\n\n",
    "data in two lines": b"data: " + ONE.replace(b",", b",\ndata:", 1) + b"\n\ndata: " + TWO + b"\n\ndata: [DONE]\n\n",
    "blank lines first": b"\n\r\n\ndata:" + ONE + b"\n\n\n\ndata: " + TWO + b"\n\ndata:[DONE]\n\n",
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
async def test_c04_bytes_out_are_bytes_in(upstream: Upstream, gateway: StartGateway, stream: bytes) -> None:
    gw = await gateway(upstream)
    for size in (1, 5, 10_000):
        upstream.script(*sends(Sse([stream]).wire(), size))
        answered = await gw.chat(**STREAM)
        # What follows the blank line of [DONE] (the LF of its last CRLF) says nothing: it may be left out.
        assert answered.body in (stream, stream.removesuffix(b"\n"))
        assert text_of(answered.body) == "Hello"
    assert {line["outcome"] for line in gw.calls()} == {"ok"}


async def test_c04_the_cases_own_packets(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse(CRLF_PIECES))
    gw = await gateway(upstream)
    assert text_of((await gw.chat(**STREAM)).body) == "Hello"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
async def test_c04_no_line_end_holds_an_event_back(upstream: Upstream, gateway: StartGateway, end: bytes) -> None:
    """The first event is out before the second one exists."""
    seen = asyncio.Event()
    first, rest = (b"data: " + ONE + end + end, b"data: " + TWO + end + end + b"data: [DONE]" + end + end)
    upstream.script(Sse([first, WaitFor(seen), rest]))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        pieces = (await client.response()).pieces()
        got = (await anext(pieces)).data
        seen.set()
        got += b"".join([piece.data async for piece in pieces])
    assert got in (first + rest, (first + rest).removesuffix(b"\n"))


async def test_c04_hidden_usage_leaves_line_ends_alone(upstream: Upstream, gateway: StartGateway) -> None:
    given = [e.replace(b"\n", b"\r\n") for e in answer("Hi", usage=(3, 1))]
    upstream.script(Sse(given))
    gw = await gateway(upstream)
    answered = await gw.chat(stream=True)
    assert b"\n" not in answered.body.replace(b"\r\n", b"")
    assert [p if p == "[DONE]" else "usage" in p for p in payloads(answered.body)] == [False, False, False, "[DONE]"]


async def test_c04_comments_are_no_token(upstream: Upstream, gateway: StartGateway) -> None:
    """A stream of comments and a role is no answer, and no token was ever counted."""
    gw = await gateway(upstream)
    for comment in (b": hi\n\n", b":\n\n", b":\n", b": a\r\n\r\n"):
        upstream.script(Sse([comment, chunk("", "assistant"), comment, DONE]))
        assert (await gw.chat(**STREAM)).status == 502
    assert (await gw.metrics()).total("turnout_time_to_first_token_seconds_count") == 0


async def test_c04_comments_between_events_pass_as_comments(upstream: Upstream, gateway: StartGateway) -> None:
    events = [chunk("Hi"), b": still there\n\n", b":\n", chunk(finish="stop"), DONE]
    upstream.script(Sse(events))
    gw = await gateway(upstream)
    assert (await gw.chat(**STREAM)).body == b"".join(events)


async def test_c04_a_plain_answer_behind_blanks(upstream: Upstream, gateway: StartGateway) -> None:
    """Some services send blanks to keep a plain connection open."""
    body = b" \n \n " + chunk("x")[6:-2].replace(b"delta", b"message")
    upstream.script(Reply(split(body, 1), framing="chunked"))
    gw = await gateway(upstream)
    assert (await gw.chat()).body == body
