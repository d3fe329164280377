"""A caller's bytes on one connection to the whole application: answers in HTTP, errors in OpenAI's shape, no fault.

No model is usable, so that nothing leaves the process.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import httptools
import structlog
from uvicorn.server import ServerState

from gateway.app import create
from gateway.edge.server import Connection, settings
from gateway.telemetry.logs import Writer, logger
from tests.fuzz.splitting import pieces, tiny, whole
from tests.fuzz.transport import Transport, run
from tests.unit.building import a_model, a_runtime, an_upstream

_CHAT = b'{"model":"auto","messages":[]}'
_POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
_REQUESTS = (
    _POST + b"content-length: %d\r\n\r\n" % len(_CHAT) + _CHAT,
    _POST + b"transfer-encoding: chunked\r\n\r\n1e\r\n" + _CHAT + b"\r\n0\r\n\r\n",
    _POST + b"content-length: 900\r\n\r\n{",
    _POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
    _POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    _POST.replace(b"json", b"xml") + b"content-encoding: gzip\r\ncontent-length: 0\r\n\r\n",
    b"GET /health/live HTTP/1.1\r\n\r\nGET /v1/models HTTP/1.1\r\nx-request-id: mine\r\n\r\n",
    b"GET /v1/models/%ff%2f?a=b HTTP/1.0\r\nauthorization: Bearer x\r\n\r\n",
    b"GET http://x/v1/models HTTP/1.1\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\n\r\n",
    b"CONNECT x:443 HTTP/1.1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\n\r\n",
    b"HEAD /v1/models HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nabc",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST /v1/v1/embeddings HTTP/1.1\r\ncontent-length: 0\r\nx-request-id: a\r\nx-request-id: b\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
)
SEEDS = tuple(form(request) for request in _REQUESTS for form in (whole, tiny))
WORDS = (
    b"GET ",
    b"POST ",
    b" HTTP/1.1\r\n",
    b"\r\n\r\n",
    b"/v1/chat/completions",
    b"/v1/models/auto",
    b"content-length: 3\r\n",
    b"transfer-encoding: chunked\r\n",
    b"content-type: application/json\r\n",
    b"expect: 100-continue\r\n",
    b"connection: upgrade\r\n",
    b"upgrade: websocket\r\n",
    b"x-api-key: x\r\n",
    b"0\r\n\r\n",
    _CHAT,
)

_TURNS = 100
"""Turns of the loop after which everything that can happen has happened."""
_FAULTS = frozenset({500, 502, 504})


@functools.cache
def _server() -> Callable[[ServerState], Connection]:
    """Makes connections to one application, which takes milliseconds to make."""
    off = an_upstream(off="it is a test")
    log = logger(cast(Writer, structlog.ReturnLogger()), as_text=False)
    application = create(a_runtime(a_model(upstream=off)), log)
    config = settings(application, application.inference, log_level="critical")
    config.load()
    return lambda state: Connection(config, state, {}, inference=application.inference)


def fuzz(data: bytes) -> None:
    """See `tests.fuzz.Target`."""
    run(_talk(pieces(data)))


async def _talk(packets: Sequence[bytes]) -> None:
    state = ServerState()
    transport = Transport(_server()(state))
    for packet in packets:
        transport.receive(packet)
        await asyncio.sleep(0)
    await _settle(state)
    transport.end()
    transport.close()
    await _settle(state)
    assert not state.tasks, "a request outlives its connection"
    _check(bytes(transport.written), b"".join(packets))


async def _settle(state: ServerState) -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        if not state.tasks:
            return


def _check(written: bytes, sent: bytes) -> None:
    answers = _Answers()
    parser = httptools.HttpResponseParser(answers)
    answers.parser = parser
    if b"HEAD" not in sent:  # its answer has a length and no body, which only the asking side knows
        parser.feed_data(written)
    for status, headers, body in answers.whole:
        assert status not in _FAULTS, body
        if status >= 400:
            error = json.loads(body)["error"]
            assert isinstance(error["message"], str)
            assert error["code"]
            assert headers[b"content-type"] == b"application/json"


class _Answers:
    """Collects whole answers from the parser."""

    parser: Any = None

    def __init__(self) -> None:
        self.whole: list[tuple[int, dict[bytes, bytes], bytes]] = []
        self._headers: dict[bytes, bytes] = {}
        self._body = b""

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= 200:
            self.whole.append((status, self._headers, self._body))
