"""The framer beside a slow reading of the event-stream grammar (WHATWG HTML, 9.2.6): same events, same bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gateway.relay import events
from gateway.relay.sse import EventTooLong, Framer, data_of
from tests.fuzz.splitting import pieces, tiny, whole

_STREAMS = (
    b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n',
    b"data: a\r\n\r\ndata: b\r\n\r\n: comment\r\n\r\n",
    b"data: a\r\rdata: b\r\r\r",
    b"\n\n\r\n\r\ndata\ndata:\ndata: \ndata:  x \n\n",
    b"event: x\nid: 1\nretry: 5\ndata: a\ndata: b\n\ndata: c\n",
    b'data: {"usage":{"prompt_tokens":1},\ndata: "choices":[]}\n\n',
    b': x\ndata: {"usage":null,"choices":[{"delta":{}}]}\n\n',
    "data: 你好\u2028\x85\x0b\n\n".encode(),
    b'data: {"error":{"message":"x"}}\n\n',
    b'data: {"usage":null}\ndata\n\n: {"usage":1}\ndata: {"usage":1}\n\n',
    b'data\rdata: {"usage":null}\n\n',
)
SEEDS = tuple(form(stream) for stream in _STREAMS for form in (whole, tiny))
WORDS = (b"data: ", b"data:", b"\n\n", b"\r\n\r\n", b"\r\r", b'{"usage":', b'{"choices":[', b"[DONE]", b"event: x\n")

_CAP = 1 << 20
_SMALL_CAP = 32
_USAGE = frozenset({"usage"})


def fuzz(data: bytes) -> None:
    """See `tests.fuzz.Target`."""
    packets = pieces(data)
    stream = b"".join(packets)
    if stream.startswith(b"\xef\xbb\xbf"):
        return  # a byte order mark is the relay's business
    framed = _framed(packets, stream)
    assert [d.strip(b" \n") for e in framed if (d := data_of(e)) is not None] == _reference(stream)
    if b"\r" not in stream:
        assert framed == _framed([stream], stream)
    _check_cap(packets, framed)
    for event in framed:
        _check_reading(event)


def _framed(packets: Sequence[bytes], stream: bytes) -> list[bytes]:
    """The events; what went in comes out."""
    framer = Framer(_CAP)
    framed = [event for packet in packets for event in framer.feed(packet)]
    out = b"".join(framed)
    assert stream.startswith(out)
    assert framer.rest() == stream[len(out) :].strip(b"\r\n")
    assert framer.empty is (out == stream)
    return framed


def _check_cap(packets: Sequence[bytes], framed: list[bytes]) -> None:
    framer = Framer(_SMALL_CAP)
    seen: list[bytes] = []
    try:
        for packet in packets:
            seen += framer.feed(packet)
    except EventTooLong:
        assert any(len(event) > _SMALL_CAP for event in framed) or len(b"".join(packets)) > _SMALL_CAP
    assert framed[: len(seen)] == seen


def _check_reading(event: bytes) -> None:
    """Reading never fails, and cutting a field out leaves one event with all others."""
    seen = events.read(event)
    if seen.fields.isdisjoint(_USAGE):
        return
    cut = events.without(event, _USAGE)
    assert len(Framer(_CAP).feed(cut)) == 1
    kept = {name: value for name, value in json.loads(data_of(event) or b"").items() if name != "usage"}
    assert json.loads(data_of(cut) or b"") == kept


def _reference(stream: bytes) -> list[bytes]:
    """The data of each dispatched event, by the letter of the specification, less the blanks around it."""
    lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    dispatched: list[bytes] = []
    buffer = b""
    for line in lines:
        if not line:
            if buffer:
                dispatched.append(buffer[:-1].strip(b" \n"))
            buffer = b""
        elif line == b"data":
            buffer += b"\n"
        elif line.startswith(b"data:"):
            buffer += line[5:].removeprefix(b" ") + b"\n"
    return dispatched
