"""Server-sent events as bytes: framing only, no decoding (WHATWG HTML, section "Server-sent events")."""

from __future__ import annotations

import re

_EOL = rb"(?:\r\n|\n|\r(?!\n))"
_BLANK_LINE = re.compile(_EOL + _EOL)
_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventTooLong(Exception):
    """One event outgrew the cap."""


class Framer:
    """Cuts a byte stream into whole events, each with its own blank line, whatever the packet boundaries.

    A CR at the very end of what has come ends its line at once: should LF follow, it starts the next piece, where an
    empty line means nothing. So bytes out always equal bytes in, and a CR-only stream is not held back.
    """

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._buffer = bytearray()

    @property
    def empty(self) -> bool:
        """No unfinished event is held."""
        return not self._buffer

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes. Raises EventTooLong once an unfinished event exceeds the cap (bytes)."""
        buffer = self._buffer
        search_from = max(0, len(buffer) - 3)
        buffer += data
        events: list[bytes] = []
        start = 0
        while (blank := _BLANK_LINE.search(buffer, search_from)) is not None:
            events.append(bytes(buffer[start : blank.end()]))
            start = search_from = blank.end()
        if start:
            del buffer[:start]
        if len(buffer) > self._cap:
            raise EventTooLong
        return events

    def rest(self) -> bytes:
        """What is left of an unfinished event; empty if only line ends are."""
        return bytes(self._buffer).strip(b"\r\n")


def data_of(event: bytes) -> bytes | None:
    """The event's data field: its `data` lines joined by LF; None for comments and events without data."""
    if event.startswith(b"data:") and event.find(b"\n", 0, -2) < 0 and b"\r" not in event:
        return event[5:].strip(b" \n")  # one line, LF: nearly every event there is
    values: list[bytes] = []
    for line in _LINE_END.split(event):
        name, _, value = line.partition(b":")
        if name == b"data":
            values.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(values) if values else None
