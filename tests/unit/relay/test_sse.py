"""Framing on bytes: where an event ends, and what its data is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.relay.sse import EventTooLong, Framer, data_of

FRAMED: list[tuple[bytes, list[bytes]]] = [
    (b"data: a\n\ndata: b\n\n", [b"data: a\n\n", b"data: b\n\n"]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"data: a\r\n\r\n", b"data: b\r\n\r\n"]),
    (b"data: a\r\rdata: b\r\r", [b"data: a\r\r", b"data: b\r\r"]),
    (b"data: a\n\r\ndata: b\r\n\n", [b"data: a\n\r\n", b"data: b\r\n\n"]),
    (b": c\n\n\n\ndata: a\n\n", [b": c\n\n", b"\n\n", b"data: a\n\n"]),
    (b"a\x0b\x0c\x85\xe2\x80\xa8\x00\n\n", [b"a\x0b\x0c\x85\xe2\x80\xa8\x00\n\n"]),
    (b"data: a\r\n", []),
    (b"", []),
]


@pytest.mark.parametrize(("stream", "events"), FRAMED)
def test_events_end_with_a_blank_line(stream: bytes, events: list[bytes]) -> None:
    framer = Framer(100)
    assert framer.feed(stream) == events
    assert framer.empty is (b"".join(events) == stream)


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"data:x", b": y", b"z"])), st.data())
def test_no_byte_is_lost_or_moved(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    framer, out = Framer(10_000), b""
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        out += b"".join(framer.feed(stream[:size]))
        stream = stream[size:]
    assert (out + bytes(framer._buffer)) == b"".join(parts)


def test_a_cr_at_the_end_ends_its_line_at_once() -> None:
    framer = Framer(100)
    assert framer.feed(b"data: a\r\n\r") == [b"data: a\r\n\r"]
    assert framer.feed(b"\ndata: b\r\n\r\n") == [b"\ndata: b\r\n\r\n"]


def test_an_event_over_the_cap() -> None:
    framer = Framer(10)
    assert framer.feed(b"x" * 10) == []
    with pytest.raises(EventTooLong):
        framer.feed(b"x")


def test_the_cap_is_for_unfinished_events() -> None:
    assert len(Framer(10).feed(b"x" * 50 + b"\n\n" + b"y" * 10)) == 1


@pytest.mark.parametrize(("left", "rest"), [(b"", b""), (b"\n", b""), (b"\r\n", b""), (b"data: x\n", b"data: x")])
def test_the_rest(left: bytes, rest: bytes) -> None:
    framer = Framer(100)
    framer.feed(b"data: a\n\n" + left)
    assert framer.rest() == rest


DATA: list[tuple[bytes, bytes | None]] = [
    (b"data: a\n\n", b"a"),
    (b"data:a\n\n", b"a"),
    (b"data: a\r\n\r\n", b"a"),
    (b"data: a\r\r", b"a"),
    (b"\ndata: a\r\n\r", b"a"),
    (b"data: a\ndata:b\ndata\n\n", b"a\nb\n"),
    (b"event: x\ndata: a\nid: 1\n\n", b"a"),
    (b"data:\n\n", b""),
    (b": data: a\n\n", None),
    (b"Data: a\n\n", None),
    (b"database: a\n\n", None),
    (b"\n\n", None),
]


@pytest.mark.parametrize(("event", "data"), DATA)
def test_the_data_of_an_event(event: bytes, data: bytes | None) -> None:
    assert data_of(event) == data
