"""HTTP/1.1 as bytes: what the scripted upstream and the raw client both need to read a message.

Nothing here is shared with the gateway, so a fault of the gateway's own parser cannot hide in its tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

Headers = list[tuple[str, str]]
HEAD_END = b"\r\n\r\n"

_SOCK_DIAG_BY_FAMILY = 20
_NETLINK_SOCK_DIAG = 4
_READ_QUEUE_OFFSET = 16 + 4 + 48 + 4  # netlink header, four bytes of state, the socket's id, its timer


def parse_head(head: bytes) -> tuple[str, Headers]:
    """Split a head (with its blank line) into its first line and its header pairs, order and spelling kept."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, [(name, value.strip(" \t")) for name, _, value in pairs]


def render_head(first: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """The opposite of `parse_head`."""
    return "\r\n".join([first, *(f"{name}: {value}" for name, value in headers), "", ""]).encode("latin-1")


def find_header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """The first value of that name, in any spelling; None if there is none."""
    return next((value for key, value in headers if key.lower() == name.lower()), None)


def header_pairs(headers: Mapping[str, str] | Sequence[tuple[str, str]]) -> Headers:
    """Headers given either way, as pairs."""
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)


class BodyDecoder:
    """Takes one message body out of a growing buffer, whichever way it is framed.

    `unframed` says what it means when neither a length nor chunking is announced: no body at all (a request), or
    everything up to the end of the connection (an answer).
    """

    def __init__(self, headers: Headers, unframed: Literal["empty", "until_close"]) -> None:
        length = find_header(headers, "content-length")
        self._chunked = "chunked" in (find_header(headers, "transfer-encoding") or "").lower()
        self.until_close = not self._chunked and length is None and unframed == "until_close"
        self._left = 0 if self._chunked else int(length or 0)
        self._last_chunk = False
        self._after_chunk = False
        self.complete = not self._chunked and not self.until_close and self._left == 0

    def feed(self, buffer: bytearray) -> bytes:
        """Remove from `buffer` what belongs to the body and return its decoded bytes."""
        if self.until_close:
            out = bytes(buffer)
            buffer.clear()
            return out
        decoded = bytearray()
        while not self.complete and self._step(buffer, decoded):
            pass
        return bytes(decoded)

    def _step(self, buffer: bytearray, decoded: bytearray) -> bool:
        """Take one block or one line of the framing; False if more bytes are needed."""
        if self._left:
            block = buffer[: self._left]
            del buffer[: self._left]
            decoded += block
            self._left -= len(block)
            self.complete = not self._chunked and self._left == 0
            return bool(block)
        end = buffer.find(b"\r\n")
        if end < 0:
            return False
        line = bytes(buffer[:end])
        del buffer[: end + 2]
        self._take_line(line)
        return True

    def _take_line(self, line: bytes) -> None:
        if self._last_chunk:
            self.complete = not line  # trailers end with an empty line
        elif self._after_chunk:
            self._after_chunk = False
        else:
            self._left = int(line.split(b";")[0], 16)
            self._last_chunk = self._left == 0
            self._after_chunk = not self._last_chunk


def unread_bytes(ours: tuple[str, int], theirs: tuple[str, int], kernel: socket.socket) -> int:
    """How many bytes the peer's kernel holds that its program has not read yet (IPv4, same machine).

    Asked of Linux by its socket-diagnosis interface; 0 as well if the peer's socket is gone.
    """
    ends = struct.pack("!HH", theirs[1], ours[1]) + b"".join(
        socket.inet_aton(host).ljust(16, b"\0") for host in (theirs[0], ours[0])
    )
    wanted = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + bytes(4) + b"\xff" * 8
    kernel.send(struct.pack("=IHHII", 16 + len(wanted), _SOCK_DIAG_BY_FAMILY, 1, 0, 0) + wanted)
    answer = kernel.recv(4096)
    if struct.unpack_from("=H", answer, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return 0
    count: int = struct.unpack_from("=I", answer, _READ_QUEUE_OFFSET)[0]
    return count


async def until_peer_has_read(ours: tuple[str, int], theirs: tuple[str, int], limit: float = 0.5) -> None:
    """Wait until the peer has read all that was sent, so that the next write is a read of its own there.

    Gives up after `limit` seconds (a peer that does not read). Where the kernel cannot be asked, a short sleep must do.
    """
    try:
        kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG)
    except (AttributeError, OSError):
        await asyncio.sleep(0.005)
        return
    with kernel, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit):
            turns = 0
            while unread_bytes(ours, theirs, kernel):
                await asyncio.sleep(0 if turns < 5 else 0.001)  # a peer in this very loop needs a turn or two
                turns += 1
    await asyncio.sleep(0)


def set_option(transport: asyncio.BaseTransport, level: int, option: int, value: int | bytes) -> None:
    """Set a socket option, on a copy of the descriptor since event loops lend only a stand-in for their socket."""
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as copy:
        copy.setsockopt(level, option, value)
