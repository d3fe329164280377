"""C17: an upstream that compresses although it was asked not to."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from tests.conftest import StartGateway
from tests.fakes import DONE, Reply, Sse, Upstream, WaitFor, answer, chunk, completion, split
from tests.harness import config_for
from tests.wire.calls import LIMIT, STREAM, ask, errors_of, payloads, text_of

REFUSAL = b'{"error":{"message":"no","type":"invalid_request_error","param":"x","code":"c"}}'


async def test_c17_identity_is_asked_for_whatever_the_caller_takes(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    for fields in (STREAM, {}):
        assert (await gw.chat(**fields, headers={"accept-encoding": "br, gzip"})).header("content-encoding") is None
    assert [call.header("accept-encoding") for call in upstream.calls] == ["identity", "identity"]


async def test_c17_a_plain_answer(upstream: Upstream, gateway: StartGateway) -> None:
    body = completion("你好" * 1000)
    gw = await gateway(upstream)
    for reply in (Reply(body, gzip=True), Reply(split(body, 100), gzip=True, framing="chunked")):
        upstream.script(reply)
        answered = await gw.chat()
        assert (answered.body, answered.header("content-encoding")) == (body, None)
        assert answered.header("content-length") == str(len(body))
    assert gw.calls()[0]["prompt"] == 3
    assert upstream.connections.total == 1


async def test_c17_a_stream_is_not_held_back(upstream: Upstream, gateway: StartGateway) -> None:
    first, *rest = answer("Hel", "lo")[1:]
    seen = asyncio.Event()
    upstream.script(Sse([first, WaitFor(seen), *rest], gzip=True))
    gw = await gateway(upstream)
    async with asyncio.timeout(LIMIT), gw.connect() as client:
        await client.send(ask())
        answered = await client.response()
        pieces = answered.pieces()
        assert (await anext(pieces)).data == first
        seen.set()
        assert b"".join([piece.data async for piece in pieces]) == b"".join(rest)
    assert answered.header("content-encoding") is None
    assert answered.header("content-length") is None


async def test_c17_a_refusal(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    for fields in (STREAM, {}):
        upstream.script(Reply(REFUSAL, 400, gzip=True))
        answered = await gw.chat(**fields)
        assert (answered.status, answered.body) == (400, REFUSAL)
        assert answered.header("content-encoding") is None
        assert answered.header("content-length") == str(len(REFUSAL))


async def test_c17_a_refusal_in_an_unknown_encoding_keeps_its_status(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Reply(b"\x0b\x02\x80", 400, {"content-encoding": "br"}))
    gw = await gateway(upstream)
    answered = await gw.chat()
    assert (answered.status, answered.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
async def test_c17_an_answer_that_cannot_be_read_is_none(
    upstream: Upstream, second: Upstream, gateway: StartGateway, encoding: str
) -> None:
    upstream.script(Reply(b"\x0b\x02\x80hello", 200, {"content-encoding": encoding}), times=2)
    gw = await gateway(config_for(upstream, second))
    for fields in (STREAM, {}):
        assert (await gw.chat(**fields)).header("x-turnout-upstream") == "u1"


@pytest.mark.parametrize("cut", [20, -1, -8], ids=["early", "last byte", "trailer"])
async def test_c17_a_truncated_answer_is_never_whole(
    upstream: Upstream, second: Upstream, gateway: StartGateway, cut: int
) -> None:
    """The HTTP framing is right; only the compression tells that something is missing."""
    packed = gzip.compress(completion("Hello " * 100), mtime=0)[:cut]
    upstream.script(Reply(packed, 200, {"content-encoding": "gzip"}))
    gw = await gateway(config_for(upstream, second))
    assert (await gw.chat("hello")).header("x-turnout-upstream") == "u1"


async def test_c17_broken_compression_after_content(upstream: Upstream, gateway: StartGateway) -> None:
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(chunk("Hel")) + packer.flush(zlib.Z_SYNC_FLUSH)
    upstream.script(Sse([first, b"\xff\xff\xff"], headers={"content-encoding": "gzip"}))
    gw = await gateway(upstream)
    answered = await gw.chat(**STREAM)
    assert text_of(answered.body.rpartition(b"data:")[0]) == "Hel"
    assert [e["code"] for e in errors_of(answered.body)] == ["upstream_bad_response"]
    assert payloads(answered.body)[-1] != "[DONE]"


async def test_c17_a_little_that_stands_for_a_lot(upstream: Upstream, gateway: StartGateway) -> None:
    """40 MB of one line in 40 KB: it ends at the cap like any other endless line."""
    packed = gzip.compress(chunk("Hel") + b"data: " + b"x" * 40_000_000, mtime=0)
    upstream.script(Sse([packed], headers={"content-encoding": "gzip"}))
    gw = await gateway(upstream)
    answered = await gw.chat(**STREAM)
    assert "16 MB" in errors_of(answered.body)[0]["message"]


async def test_c17_a_whole_stream_in_one_small_packet(upstream: Upstream, gateway: StartGateway) -> None:
    """More than one step of unpacking, and an end that comes along with it."""
    events = [*(chunk("x" * 50_000) for _ in range(40)), chunk(finish="stop"), DONE]
    upstream.script(Sse([b"".join(events)], gzip=True), times=2)
    gw = await gateway(upstream)
    for _ in range(2):
        assert (await gw.chat(**STREAM)).body == b"".join(events)
