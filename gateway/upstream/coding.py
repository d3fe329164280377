"""Undoes the compression of an answer, which was never asked for, a bounded piece at a time."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from gateway import clock
from gateway.errors import UpstreamFailure

PIECE = 256 * 1024
"""Bytes that one read gives at most, however much a few of the upstream's bytes stand for."""

MEMBER_SECONDS = 0.2
EMPTY = 100
"""Members in a row without content: each is begun without giving a turn to other calls."""
_PLAIN = (b"", b"identity", b"none", b"utf-8")
"""The last two are no codings, but servers say them."""
_MEMBER = b"\x1f"
_ZIPPED = (b"gzip", b"x-gzip", b"deflate")


class Decoder:
    """The plain bytes of one compressed answer."""

    def __init__(self, known: bool = True) -> None:
        self._known = known
        self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._begun = False
        self._empty = 0

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes]) -> Self | None:
        """The decoder that an answer's headers (names in lower case) call for; None: it is not compressed."""
        encoding = headers.get(b"content-encoding", b"").strip().lower()
        return None if encoding in _PLAIN else cls(encoding in _ZIPPED)

    async def read(self, source: Callable[[float], Awaitable[bytes]], deadline: float) -> bytes:
        """At most `PIECE` plain bytes; b"" at the end. `source` gives the compressed ones, b"" at their end.

        Raises UpstreamFailure bad_response, and cut where the compressed bytes end too soon.
        """
        if not self._known:
            raise UpstreamFailure("bad_response", "a content-encoding that was not asked for")
        unzip, plain = self._unzip, b""
        while not plain:
            if unzip.eof:  # another member may follow (RFC 1952, 2.2)
                data = unzip.unused_data or await _soon(source, deadline)
                if not data.startswith(_MEMBER):
                    return b""  # the end, or padding
                self._empty += 1
                if self._empty > EMPTY:
                    raise UpstreamFailure("bad_response", "broken compression")
                unzip = self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 32)
            else:
                data = unzip.unconsumed_tail or await source(deadline)
            self._begun = self._begun or bool(data)
            try:
                plain = unzip.decompress(data, PIECE)
            except zlib.error:
                raise UpstreamFailure("bad_response", "broken compression") from None
            if not data and not plain:
                if not self._begun:
                    return b""
                raise UpstreamFailure("cut", "the compressed answer ended too soon")
        self._empty = 0
        return plain


async def _soon(source: Callable[[float], Awaitable[bytes]], deadline: float) -> bytes:
    """What follows a member at once, if anything does: some upstreams never end what they send."""
    try:
        return await source(min(deadline, clock.now() + MEMBER_SECONDS))
    except UpstreamFailure:
        return b""
