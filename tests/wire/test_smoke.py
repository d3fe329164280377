"""The shortest way through the whole gateway over real sockets: bytes out equal bytes in."""

from __future__ import annotations

import os

import pytest

from tests.conftest import StartGateway
from tests.fakes import DONE, Reply, Send, Sse, Upstream, answer, chunk, completion, post, sends
from tests.harness import Gateway, config_for

CHAT = "/v1/chat/completions"
ASK = b'{"model":"auto","x_vendor":{"a":[1.0,1e-5,null]},"messages":[{"role":"user","content":"\xe4\xbd\xa0 hi"}]%b}'
PLAIN = ASK % b""
STREAM = ASK % b', "stream":true ,"stream_options":{"include_usage":true}'
EVENTS = answer("Hel", "lo 🦀", usage=(3, 2))


async def test_a_plain_answer(upstream: Upstream, gateway: StartGateway) -> None:
    body = completion("你好", (3, 2), extra={"x_new": [1.0, {}]})
    upstream.script(Reply(body))
    gw = await gateway(upstream)
    answered = await gw.fetch(CHAT, PLAIN)
    assert (answered.status, answered.body) == (200, body)
    assert answered.header("content-type") == "application/json"
    assert answered.header("x-request-id")
    call = await upstream.call()
    assert call.path == CHAT
    assert call.header("authorization") == "Bearer sk-upstream-0"
    assert call.body == PLAIN.replace(b'"auto"', b'"fake"')


async def test_a_streamed_answer(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Sse(EVENTS))
    gw = await gateway(upstream)
    async with gw.connect() as client:
        await client.send(post(CHAT, STREAM))
        answered = await client.response()
        pieces = [piece.data async for piece in answered.pieces()]
    assert answered.status == 200
    assert (answered.header("content-type") or "").startswith("text/event-stream")
    assert answered.complete
    assert b"".join(pieces) == b"".join(EVENTS)
    assert (await upstream.call()).body == STREAM.replace(b'"auto"', b'"fake"')


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_a_stream_cut_into_small_writes(upstream: Upstream, gateway: StartGateway, size: int) -> None:
    upstream.script(*sends(Sse(EVENTS).wire(), size))
    answered = await (await gateway(upstream)).fetch(CHAT, STREAM)
    assert answered.body == b"".join(EVENTS)


async def test_usage_that_the_client_did_not_ask_for_stays_inside(upstream: Upstream, gateway: StartGateway) -> None:
    gw = await gateway(upstream)
    answered = await gw.chat("one two", stream=True)
    words = [chunk("one", model="fake"), chunk(" two", model="fake")]
    assert answered.body == b"".join([chunk("", "assistant"), *words, chunk(finish="stop"), DONE])
    assert upstream.calls[0].json()["stream_options"] == {"include_usage": True}
    (line,) = gw.calls()
    assert (line["outcome"], line["prompt"], line["completion"], line["reported"]) == ("ok", 2, 2, True)
    assert (await gw.metrics()).total("turnout_requests_total", outcome="ok") == 1


async def test_each_event_leaves_as_soon_as_it_comes(upstream: Upstream, gateway: StartGateway) -> None:
    first, *rest = EVENTS[1:-1]
    upstream.script(Sse([EVENTS[0], first, *rest, DONE]))
    gw = await gateway(upstream)
    async with gw.connect() as client:
        await client.send(post(CHAT, STREAM))
        pieces = [piece.data async for piece in (await client.response()).pieces()]
    assert pieces[0].endswith(first)
    assert pieces[1] == rest[0]


async def test_a_model_that_fails_before_its_answer_is_replaced(upstream: Upstream, gateway: StartGateway) -> None:
    upstream.script(Send(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"))
    async with Upstream() as second:
        gw = await gateway(config_for(upstream, second))
        answered = await gw.chat("hello")
        assert answered.json()["choices"][0]["message"]["content"] == "hello"
        assert (upstream.count(), second.count()) == (1, 1)
        assert answered.header("x-turnout-upstream") == "u1"


@pytest.mark.seconds
async def test_the_process_serves_counts_logs_and_ends_well(upstream: Upstream) -> None:
    async with Gateway(config_for(upstream, models={"m0": {"model": "${MODEL}"}}), {"MODEL": "fake"}) as gw:
        answered = await gw.chat("你好", stream=True)
        assert answered.body.endswith(chunk(finish="stop") + DONE)
        line = await gw.logged(event="call")
        assert (line["outcome"], line["model"], line["id"]) == ("ok", "m0", answered.header("x-request-id"))
        assert (await gw.metrics()).total("turnout_tokens_total", kind="completion") == 1
        assert 20_000_000 < gw.rss() < 500_000_000
        assert gw.descriptors() > 3
        pid = gw.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert gw.calls()


@pytest.mark.seconds
async def test_a_configuration_that_is_refused_fails_with_the_gateways_own_words() -> None:
    with pytest.raises(RuntimeError, match="ended with 2:"):
        await Gateway("version: 2\n").__aenter__()
