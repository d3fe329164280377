"""Sessions of the operations page: the admin key, exchanged for a signed cookie. The gateway keeps nothing of them.

A cookie holds its end, an id and a signature by a key that comes from the admin key: another admin key ends them all.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict, deque

from gateway import clock
from gateway.errors import GatewayError

COOKIE = "turnout_ops"
SECONDS = 8 * 3600
TRIES, TRY_SECONDS = 5, 60.0
"""Wrong keys that an address may send in so many seconds."""
MOST_ADDRESSES = 10_000
_SHAPE = re.compile(r"([0-9]{1,12})\.([0-9a-f]{8})\.([0-9a-f]{64})")


def new_session(admin_key: str, now: float | None = None) -> str:
    """A cookie's value."""
    ends = int((time.time() if now is None else now) + SECONDS)
    said = f"{ends}.{secrets.token_hex(4)}"
    return f"{said}.{_signature(admin_key, said)}"


def session_of(admin_key: str, cookie: str, now: float | None = None) -> str | None:
    """The id of the session that a cookie belongs to; None: it is wrong, or over."""
    parts = _SHAPE.fullmatch(cookie)
    if parts is None:
        return None
    signed = hmac.compare_digest(parts[3], _signature(admin_key, f"{parts[1]}.{parts[2]}"))
    return parts[2] if signed and int(parts[1]) > (time.time() if now is None else now) else None


def _signature(admin_key: str, said: str) -> str:
    key = hmac.digest(admin_key.encode(), b"turnout operations page 1", "sha256")
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()


class Guesses:
    """Wrong keys by address: so many a minute, no more."""

    def __init__(self, most: int = TRIES, seconds: float = TRY_SECONDS) -> None:
        self._most, self._seconds = most, seconds
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raises GatewayError when there were too many of late."""
        wrong = self._wrong.get(address)
        while wrong and wrong[0] <= clock.now() - self._seconds:
            wrong.popleft()
        if wrong and len(wrong) >= self._most:
            wait = wrong[0] + self._seconds - clock.now()
            text = f"{self._most} wrong keys came from this address within {self._seconds:.0f} seconds: wait a moment."
            raise GatewayError("rate_limit_exceeded", text, retry_after=max(1.0, wait))

    def note(self, address: str) -> None:
        """One more."""
        self._wrong.setdefault(address, deque()).append(clock.now())
        self._wrong.move_to_end(address)
        if len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)
