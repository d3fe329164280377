"""Looks at every exchange now and then, so that no call needs a timer or a task of its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from gateway import clock


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds."""

    ping: float = 20.0
    """A stream that stays silent for so long gets a comment."""
    body: float = 30.0
    """A request body may pause for so long."""
    stall: float = 60.0
    """A caller may leave bytes untaken for so long."""


class Watched(Protocol):
    """What the pulse looks at."""

    def look(self, now: float, patience: Patience) -> None:
        """Act on whatever has taken too long."""


class Pulse:
    """One timer for all exchanges; it runs while there are any."""

    def __init__(self, patience: Patience = Patience()) -> None:
        self._patience = patience
        self._every = min(1.0, min(patience.ping, patience.body, patience.stall) / 4)
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, watched: Watched) -> None:
        """Look at it from now on."""
        self._watched.add(watched)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._beat)

    def remove(self, watched: Watched) -> None:
        """Look at it no more."""
        self._watched.discard(watched)

    def _beat(self) -> None:
        now = clock.now()
        for watched in list(self._watched):
            watched.look(now, self._patience)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._every, self._beat) if self._watched else None
