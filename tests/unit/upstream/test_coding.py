"""Compressed answers: undone piece by piece, and what is wrong with them is said."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Awaitable, Callable, Iterable

import pytest

from gateway.errors import UpstreamFailure
from gateway.upstream.coding import PIECE, Decoder

TEXT = "增量 delta ".encode() * 100


def source(pieces: Iterable[bytes]) -> Callable[[float], Awaitable[bytes]]:
    """Gives the pieces, then b"" for ever."""
    left = iter(pieces)

    async def read(deadline: float) -> bytes:
        assert deadline == 7.0
        return next(left, b"")

    return read


async def decoded(encoding: bytes, pieces: Iterable[bytes]) -> list[bytes]:
    """What the reads give until their end."""
    decoder, read = Decoder.of({b"content-encoding": encoding}), source(pieces)
    assert decoder is not None
    out = []
    while piece := await decoder.read(read, 7.0):
        out.append(piece)
    assert await decoder.read(read, 7.0) == b""
    return out


@pytest.mark.parametrize(
    "headers", [{}, {b"content-encoding": b""}, {b"content-encoding": b" Identity "}, {b"content-encoding": b"UTF-8"}]
)
def test_plain_answers_need_no_decoder(headers: dict[bytes, bytes]) -> None:
    assert Decoder.of(headers) is None


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        (b"gzip", gzip.compress(TEXT)),
        (b" X-GZIP ", gzip.compress(TEXT)),
        (b"deflate", zlib.compress(TEXT)),
        (b"gzip", gzip.compress(TEXT[:100]) + gzip.compress(b"") + gzip.compress(TEXT[100:])),
    ],
    ids=["gzip", "x-gzip", "deflate", "members"],
)
@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_any_cut_gives_the_same_bytes(encoding: bytes, packed: bytes, size: int) -> None:
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    assert b"".join(await decoded(encoding, pieces)) == TEXT


async def test_pieces_are_bounded() -> None:
    pieces = await decoded(b"gzip", [gzip.compress(bytes(20 * PIECE))])
    assert max(map(len, pieces)) <= PIECE
    assert sum(map(len, pieces)) == 20 * PIECE


async def test_flushed_pieces_come_at_once() -> None:
    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH) for text in (b"one", b"two")] + [packer.flush()]
    assert await decoded(b"gzip", pieces) == [b"one", b"two"]


async def test_nothing_at_all_is_an_empty_answer() -> None:
    assert await decoded(b"gzip", []) == []


@pytest.mark.parametrize(
    ("encoding", "pieces", "cause"),
    [
        (b"gzip", [gzip.compress(TEXT)[:-9]], "cut"),
        (b"gzip", [b"\x1f"], "cut"),
        (b"gzip", [b"<html>"], "bad_response"),
        (b"br", [b"anything"], "bad_response"),
        (b"gzip, gzip", [gzip.compress(gzip.compress(TEXT))], "bad_response"),
    ],
    ids=["its end is missing", "one byte", "no gzip", "unknown", "twice"],
)
async def test_what_cannot_be_undone(encoding: bytes, pieces: list[bytes], cause: str) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        await decoded(encoding, pieces)
    assert caught.value.cause == cause


@pytest.mark.parametrize("tail", [b"\0" * 16, b"\n", b"padding"])
@pytest.mark.parametrize("apart", [False, True])
async def test_what_follows_and_is_no_member_is_padding(tail: bytes, apart: bool) -> None:
    packed = gzip.compress(TEXT)
    assert b"".join(await decoded(b"gzip", [packed, tail] if apart else [packed + tail])) == TEXT


async def test_members_with_content_are_not_bounded() -> None:
    assert b"".join(await decoded(b"gzip", [gzip.compress(b"x") * 300])) == b"x" * 300


async def test_empty_members_are_bounded() -> None:
    with pytest.raises(UpstreamFailure, match="broken compression"):
        await decoded(b"gzip", [gzip.compress(b"") * 200])
