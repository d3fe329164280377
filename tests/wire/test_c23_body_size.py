"""Case C23: the limit on request bodies counts while it reads, tells its reason in a 413, and closes cleanly."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from tests.conftest import StartGateway
from tests.fakes import Client, Response, Upstream, post, request
from tests.harness import config_for
from tests.wire.checks import BEARER, CHAT, KEYS, openai_error, still_well

MIB = 1024 * 1024
LIMIT = 20.0
"""Seconds after which a wait has failed."""
SMALL: dict[str, Any] = {"gateway": {"max_body_mb": 1}}
CHUNKED = {"transfer-encoding": "chunked"}


def image(size: int) -> bytes:
    """A chat body of exactly that many bytes, an inline image filling it."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    empty = json.dumps({"model": "fake", "messages": [{"role": "user", "content": [part]}]}).encode()
    return empty.replace(b"base64,", b"base64," + b"A" * (size - len(empty)))


def in_chunks(body: bytes, size: int = 65536) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("headers", [{}, CHUNKED], ids=["length", "chunked"])
async def test_20_mb_pass_by_default(upstream: Upstream, gateway: StartGateway, headers: dict[str, str]) -> None:
    body = image(20 * MIB)
    gw = await gateway(upstream)
    answer = await gw.fetch(CHAT, in_chunks(body) if headers else body, headers=headers)
    assert answer.status == 200
    assert (await upstream.call()).body == body


@pytest.mark.parametrize("headers", [{}, CHUNKED], ids=["length", "chunked"])
async def test_the_limit_is_exact(upstream: Upstream, gateway: StartGateway, headers: dict[str, str]) -> None:
    gw = await gateway(config_for(upstream, **SMALL))
    for size, status in ((MIB, 200), (MIB + 1, 413)):
        body = image(size)
        answer = await gw.fetch(CHAT, in_chunks(body) if headers else body, headers=headers)
        assert answer.status == status, size
    assert "1 MB (gateway.max_body_mb)" in openai_error(answer, 413, "body_too_large")["message"]
    assert upstream.count() == 1


async def test_a_declared_excess_is_refused_before_it_is_sent(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, **SMALL))
    async with gw.connect() as client:
        await client.send(post(CHAT, b"", {"content-length": str(MIB + 1)}))
        await _refused_and_closed(client, 413, "body_too_large", rest=b"x" * (MIB + 1))
    await still_well(gw, upstream)


async def test_a_chunked_excess_is_counted_while_it_is_read(upstream: Upstream, gateway: StartGateway) -> None:
    """The answer comes although the body never ends."""
    gw = await gateway(config_for(upstream, **SMALL))
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    async with gw.connect() as client:
        await client.send(post(CHAT, piece * 17, CHUNKED))
        await _refused_and_closed(client, 413, "body_too_large", rest=piece * 64 + b"0\r\n\r\n")
    await still_well(gw, upstream)


async def test_a_caller_that_sends_everything_first_gets_its_answer(upstream: Upstream, gateway: StartGateway) -> None:
    """As most clients do; a reset would eat the answer, and they would send it all again."""
    gw = await gateway(config_for(upstream, **SMALL))
    answer = await gw.fetch(CHAT, image(30 * MIB))
    openai_error(answer, 413, "body_too_large")
    assert answer.header("connection") == "close"


@pytest.mark.seconds
async def test_zero_is_no_limit(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, gateway={"max_body_mb": 0}))
    body = image(40 * MIB)
    assert (await gw.fetch(CHAT, body)).status == 200
    assert (await upstream.call()).body == body


@pytest.mark.seconds
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "identity, gzip", "x-unknown"])
async def test_a_compressed_body_is_not_inflated(upstream: Upstream, gateway: StartGateway, coding: str) -> None:
    gw = await gateway(config_for(upstream, **SMALL))
    answer = await gw.fetch(CHAT, gzip.compress(image(40 * MIB)), headers={"content-encoding": coding})
    openai_error(answer, 415, "unsupported_media_type")
    await still_well(gw, upstream)


@pytest.mark.parametrize("headers", [{"content-length": "5000000"}, CHUNKED], ids=["length", "chunked"])
async def test_who_has_no_key_is_refused_before_the_body(
    upstream: Upstream, gateway: StartGateway, headers: dict[str, str]
) -> None:
    gw = await gateway(config_for(upstream, keys=KEYS))
    async with gw.connect() as client:
        await client.send(post(CHAT, b"", headers))
        await _refused_and_closed(client, 401, "invalid_api_key", rest=None)
    await still_well(gw, upstream, **BEARER)


async def test_a_client_that_asks_first_is_told_not_to_send(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, **SMALL))
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(post(CHAT, b"", {"content-length": str(2 * MIB), "expect": "100-continue"}))
        answer = await client.response(interim=True)
        await answer.read()
        openai_error(answer, 413, "body_too_large")
        await client.until_closed()


async def test_a_client_that_asks_first_is_told_to_go_on(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, **SMALL))
    body = image(1000)
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        await client.send(post(CHAT, b"", {"content-length": "1000", "expect": "100-continue"}))
        assert (await client.response(interim=True)).status == 100
        await client.send(body)
        assert (await client.response()).status == 200
    assert (await upstream.call()).body == body


async def test_other_paths_do_not_keep_a_body(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, **SMALL))
    for target, status in (("/nothing", 404), ("/v1/models", 405)):
        answer = await gw.fetch(target, b"x" * (3 * MIB))
        openai_error(answer, status)


async def test_an_early_refusal_of_a_small_body_keeps_the_connection(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(config_for(upstream, keys=KEYS))
    async with gw.connect() as client, asyncio.timeout(LIMIT):
        for sent, status in ((post(CHAT, image(500)), 401), (request("GET", "/health/live"), 200)):
            await client.send(sent)
            answer = await client.response()
            await answer.read()
            assert (answer.status, answer.header("connection")) == (status, None)


async def _refused_and_closed(client: Client, status: int, code: str, rest: bytes | None) -> Response:
    """The error comes now; the connection takes `rest` without a reset, then closes."""
    async with asyncio.timeout(LIMIT):
        answer = await client.response()
        await answer.read()
        openai_error(answer, status, code)
        assert answer.header("connection") == "close"
        if rest is None:
            client.send_eof()
        else:
            await client.send(rest)
        await client.until_closed()
    assert not client.was_reset
    return answer
