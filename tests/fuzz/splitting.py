"""How targets read an input that stands for a stream in packets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle


def pieces(data: bytes) -> list[bytes]:
    """The input as packets: its first byte says how many sizes follow, these repeat, and the rest is the stream."""
    count = data[0] % 8 if data else 0
    sizes, stream = data[1 : 1 + count], data[1 + count :]
    return list(_cut(stream, sizes)) if sizes else [stream] if stream else []


def _cut(stream: bytes, sizes: bytes) -> Iterator[bytes]:
    lengths = cycle(size + 1 for size in sizes)
    while stream:
        length = next(lengths)
        yield stream[:length]
        stream = stream[length:]


def whole(stream: bytes) -> bytes:
    """The input that stands for this stream in one packet."""
    return b"\0" + stream


def tiny(stream: bytes) -> bytes:
    """The input that stands for this stream in packets of one, three and two bytes."""
    return b"\3\0\2\1" + stream
