"""The ASGI adapter, driven by hand: reading, starting, failing, and a caller that leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway import clock
from gateway.call import ENDPOINTS, Call
from gateway.clock import Tasks
from gateway.edge.asgi import AsgiExchange
from gateway.edge.line import SCOPE_KEY
from gateway.edge.pulse import Patience, Pulse
from gateway.errors import GatewayError
from tests.unit.building import a_call

BODY = b'{"model":"auto","messages":[],"stream":%b}'
LIMIT = 15.0


class Peer:
    """The web server's side: messages to receive, messages sent, and the line of the connection."""

    def __init__(self, headers: dict[bytes, bytes], *messages: dict[str, Any], patience: Patience = Patience()) -> None:
        self.messages = list(messages)
        self.sent: list[Any] = []
        self.news = asyncio.Event()
        self.body_complete = True
        self.dropped = False
        self.takes = True
        """The caller reads what is sent to it."""
        self.lost: Callable[[], None] | None = None
        self.pulse, self.tasks = Pulse(patience), Tasks()
        scope = {"headers": list(headers.items()), "extensions": {SCOPE_KEY: self}}
        self.exchange = AsgiExchange(ENDPOINTS["chat"], scope, self.receive, self.send, self.pulse, self.tasks)

    async def receive(self) -> dict[str, Any]:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def send(self, message: Any) -> None:
        if not self.takes:
            await asyncio.Event().wait()
        self.sent.append(message)
        self.news.set()

    def on_lost(self, callback: Callable[[], None] | None) -> None:
        self.lost = callback

    def drop(self) -> None:
        self.dropped = True

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def ended(self) -> bool:
        return bool(self.sent) and not self.sent[-1].get("more_body", False)


@pytest.fixture(autouse=True)
async def limit() -> AsyncIterator[None]:
    async with asyncio.timeout(LIMIT):
        yield


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def call(stream: bool = False) -> Call:
    return a_call(BODY % (b"true" if stream else b"false"), arrived=clock.now())


async def test_a_body_in_pieces() -> None:
    assert await Peer({}, part(b"ab", True), part(b"", True), part(b"cd")).exchange.read(4) == b"abcd"
    assert await Peer({}, part(b"abcd" * 1000)).exchange.read(0) == b"abcd" * 1000


@pytest.mark.parametrize("pieces", [(part(b"abcde"),), (part(b"abc", True), part(b"de", True), part(b"unread"))])
async def test_a_body_over_the_limit(pieces: tuple[dict[str, Any], ...]) -> None:
    peer = Peer({}, *pieces)
    with pytest.raises(GatewayError) as refusal:
        await peer.exchange.read(4)
    assert (refusal.value.code, refusal.value.status) == ("body_too_large", 413)
    assert peer.messages == list(pieces[2:])


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({b"content-length": b"5"}, "body_too_large"),
        ({b"content-length": b"0" * 5000 + b"5"}, "body_too_large"),
        ({b"content-length": b"9" * 5000}, "body_too_large"),
        ({b"content-type": b"text/plain"}, "unsupported_media_type"),
        ({b"content-encoding": b"gzip"}, "unsupported_media_type"),
    ],
)
async def test_a_head_that_says_enough(headers: dict[bytes, bytes], code: str) -> None:
    """Nothing of the body is asked for."""
    peer = Peer(headers, part(b""))
    with pytest.raises(GatewayError) as refusal:
        await peer.exchange.read(4)
    assert refusal.value.code == code
    assert len(peer.messages) == 1


async def test_a_body_that_pauses_too_long() -> None:
    peer = Peer({}, part(b"a", True), patience=Patience(body=0.02))
    peer.exchange.watch(call())
    with pytest.raises(GatewayError) as refusal:
        await peer.exchange.read(0)
    assert (refusal.value.code, refusal.value.status) == ("request_timeout", 408)
    peer.exchange.release()


async def test_a_caller_that_leaves_within_its_body() -> None:
    peer = Peer({}, part(b"a", True), {"type": "http.disconnect"})
    with pytest.raises(asyncio.CancelledError):
        await peer.exchange.read(0)
    assert peer.exchange.left


async def test_a_caller_that_leaves_cancels_the_task() -> None:
    peer = Peer({})

    async def work() -> None:
        peer.exchange.watch(call())
        peer.news.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await peer.news.wait()
    assert peer.lost is not None
    peer.lost()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert peer.exchange.left
    peer.exchange.release()
    assert peer.lost is None


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_starts_once(stream: bool) -> None:
    peer, made = Peer({}), call(stream)
    await peer.exchange.start(made, b"text/x", None if stream else 5)
    await peer.exchange.start(made, b"text/y", 7)
    await peer.exchange.write(b"hel")
    await peer.exchange.end(b"lo")
    assert (peer.status, peer.body, peer.ended, made.status) == (200, b"hello", True, 200)
    assert peer.headers["content-type"] == "text/x"
    assert peer.headers.get("content-length") == (None if stream else "5")
    assert peer.headers.get("cache-control") == ("no-cache" if stream else None)
    assert peer.headers["openai-processing-ms"].isdigit()


async def test_a_refusal() -> None:
    peer, made = Peer({}), call()
    await peer.exchange.fail(made, GatewayError("rate_limit_exceeded", "slow down", retry_after=2))
    assert (peer.status, made.status, peer.ended) == (429, 429, True)
    assert json.loads(peer.body)["error"]["code"] == "rate_limit_exceeded"
    assert peer.headers["retry-after"] == "2"
    assert int(peer.headers["content-length"]) == len(peer.body)
    assert "connection" not in peer.headers


async def test_an_early_refusal_takes_the_rest_of_the_body_after_its_answer() -> None:
    peer = Peer({}, part(b"x" * 1000, True), part(b"y", True), part(b"z"))
    peer.body_complete = False
    await peer.exchange.fail(call(), GatewayError("invalid_api_key", "no"))
    assert (peer.status, peer.headers["connection"], peer.ended) == (401, "close", True)
    assert int(peer.headers["content-length"]) == len(peer.body)
    assert peer.messages == []


async def test_a_caller_that_asked_first_is_not_told_to_go_on() -> None:
    """Receiving would send 100 Continue."""
    peer = Peer({b"expect": b"100-continue"}, part(b"x"))
    peer.body_complete = False
    await peer.exchange.fail(call(), GatewayError("body_too_large", "no"))
    assert (peer.status, peer.ended, len(peer.messages)) == (413, True, 1)


async def test_a_failure_in_a_stream_is_an_event() -> None:
    peer, made = Peer({}), call(stream=True)
    await peer.exchange.start(made, b"text/event-stream", None)
    await peer.exchange.fail(made, GatewayError("upstream_timeout", "gone"))
    assert json.loads(peer.body.removeprefix(b"data: "))["error"]["code"] == "upstream_timeout"
    assert (peer.ended, peer.dropped) == (True, False)


async def test_a_failure_in_a_plain_answer_drops_the_line() -> None:
    peer, made = Peer({}), call()
    await peer.exchange.start(made, b"application/json", None)
    await peer.exchange.fail(made, GatewayError("upstream_timeout", "gone"))
    assert peer.dropped
    assert peer.body == b""


async def test_a_silent_stream_is_pinged() -> None:
    peer = Peer({}, patience=Patience(ping=0.02))
    peer.exchange.watch(call(stream=True))
    while peer.body.count(b": ping\n\n") < 2:
        peer.news.clear()
        await peer.news.wait()
    assert (peer.status, peer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    peer.exchange.release()
    await peer.tasks.close()


async def test_a_caller_that_does_not_read_is_dropped() -> None:
    peer = Peer({}, patience=Patience(stall=0.02))
    peer.takes = False

    async def work() -> None:
        peer.exchange.watch(call())
        await peer.exchange.write(b"x")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())
    assert peer.dropped
    assert peer.exchange.left
    peer.exchange.release()


@pytest.mark.parametrize(("given", "kept"), [(b"mine-1", True), (b"a b", False), (b"", False)])
async def test_the_request_id(given: bytes, kept: bool) -> None:
    assert (Peer({b"x-request-id": given}).exchange.request_id == given.decode()) is kept
