"""Heads and bodies as bytes; the kernel's own count of unread ones."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import split
from tests.fakes.wire import BodyDecoder, parse_head, render_head, unread_bytes, until_peer_has_read


def test_a_head_survives_both_ways() -> None:
    head = b"GET /\xc3\xa9 HTTP/1.1\r\nA: 1\r\na: x:y\r\nEmpty: \r\n\r\n"
    first, headers = parse_head(head)
    assert (first, headers) == ("GET /Ã© HTTP/1.1", [("A", "1"), ("a", "x:y"), ("Empty", "")])
    assert render_head(first, headers) == head


@given(st.lists(st.binary(min_size=1, max_size=40)), st.integers(1, 50))
def test_a_chunked_body_is_the_same_however_it_arrives(chunks: list[bytes], size: int) -> None:
    wire = b"".join(b"%X;n=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nT: 1\r\n\r\n"
    decoder, buffer, body = BodyDecoder([("Transfer-Encoding", "Chunked")], "empty"), bytearray(), b""
    for piece in split(wire, size):
        assert not decoder.complete
        buffer += piece
        body += decoder.feed(buffer)
    assert decoder.complete
    assert body == b"".join(chunks)


def test_a_body_takes_its_length_and_no_more() -> None:
    decoder, buffer = BodyDecoder([("content-length", "3")], "until_close"), bytearray(b"abcdef")
    assert decoder.feed(buffer) == b"abc"
    assert decoder.complete
    assert buffer == b"def"


@pytest.mark.parametrize(("unframed", "complete"), [("empty", True), ("until_close", False)])
def test_what_has_no_framing(unframed: str, complete: bool) -> None:
    decoder = BodyDecoder([], unframed)  # type: ignore[arg-type]
    assert decoder.complete is complete
    assert decoder.feed(bytearray(b"abc")) == (b"" if complete else b"abc")


@pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="only Linux can be asked")
async def test_the_kernel_knows_what_the_peer_has_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as peer:
        ours, _ = server.accept()
        with ours, socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 4) as kernel:
            kernel.connect((0, 0))
            ends = (ours.getsockname(), ours.getpeername())
            ours.send(b"hello")
            assert unread_bytes(*ends, kernel) == 5
            await until_peer_has_read(*ends, limit=0.01)
            assert peer.recv(2) == b"he"
            assert unread_bytes(*ends, kernel) == 3
            assert peer.recv(9) == b"llo"
            assert unread_bytes(*ends, kernel) == 0
