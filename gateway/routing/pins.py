"""What each conversation is pinned to: in memory, and where there is Redis, there as well, for other processes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

import msgspec


class Pin(msgspec.Struct, frozen=True, array_like=True):
    """What a conversation's first decision was."""

    route: str
    rule: str
    model: str
    task: str | None = None


class Remote(Protocol):
    """Where pins are shared. It may forget them, and may be out of reach at times: then it knows none."""

    async def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes, seconds: int) -> None: ...


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Pin).decode


class Pins:
    """Pins in memory: the latest `capacity` conversations, each for `seconds` after its last call.

    Another process's pin is asked for once, when a conversation is first seen here; this one's is sent when it changes,
    and again before it would expire.
    """

    def __init__(self, capacity: int = 100_000, seconds: float = 3600.0, remote: Remote | None = None) -> None:
        self._capacity = capacity
        self._seconds = seconds
        self._remote = remote
        self._pins: OrderedDict[bytes, tuple[float, Pin, float]] = OrderedDict()
        """Key -> when it was last used, the pin, when it was last sent."""

    @property
    def shared(self) -> bool:
        """Other processes may know pins that this one does not."""
        return self._remote is not None

    async def recall(self, key: bytes, now: float) -> None:
        """Have the pin here that another process made."""
        if self._remote is None or self.get(key, now) is not None:
            return
        value = await self._remote.get(key)
        if value is None:
            return
        try:
            pin = _decode(value)
        except msgspec.DecodeError:
            return  # of another version
        self._keep(key, (now, pin, now))

    def get(self, key: bytes, now: float) -> Pin | None:
        """The pin, if it has not expired."""
        found = self._pins.get(key)
        if found is None:
            return None
        used, pin, _ = found
        if now - used > self._seconds:
            del self._pins[key]
            return None
        return pin

    def put(self, key: bytes, pin: Pin, now: float) -> None:
        """Pin a conversation, or prolong its pin."""
        known = self._pins.get(key)
        sent = known[2] if known is not None and known[1] == pin else float("-inf")
        if self._remote is not None and now - sent > self._seconds / 10:
            self._remote.put(key, _encode(pin), round(self._seconds))
            sent = now
        self._keep(key, (now, pin, sent))

    def _keep(self, key: bytes, entry: tuple[float, Pin, float]) -> None:
        self._pins[key] = entry
        self._pins.move_to_end(key)
        if len(self._pins) > self._capacity:
            self._pins.popitem(last=False)

    def __len__(self) -> int:
        return len(self._pins)
