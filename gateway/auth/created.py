"""All created keys, in memory: loaded at the start, then kept up to date beside the calls. No call waits for the
database, and while it is down the keys are as they were."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from gateway.auth.record import KeyRecord, Secret, plain
from gateway.auth.secret import digest, is_created
from gateway.auth.store import REMEMBERED_MS, KeyStore, Mark, now_ms
from gateway.call import Caller
from gateway.clock import Tasks
from gateway.database import Database, DatabaseDown
from gateway.errors import GatewayError

POLL_SECONDS = 0.4
"""Between two questions whether a key has changed: with the answer's time, well below the second that is promised."""
LONGEST_PAUSE = 2.0
"""Between two attempts while the database is down."""
START_SECONDS = 5.0
"""How long a start waits for the keys; then the gateway serves without them, until they are there."""
FORGET_SECONDS = 86_400.0
"""How often what ended long ago is taken out."""


class Created(Protocol):
    """What the keyring asks of created keys."""

    @property
    def known(self) -> bool:
        """They have been read."""

    def find(self, credential: bytes) -> Caller | None:
        """Whoever comes with this secret; None: nobody has it. Raises GatewayError invalid_api_key for one that was
        revoked, has expired, or was replaced."""


class NoKeys:
    """There are none."""

    known = True

    def find(self, credential: bytes) -> Caller | None:
        """Nobody's."""
        return None


@dataclass(frozen=True, slots=True)
class _Entry:
    """One secret of a key. Times are milliseconds since 1970."""

    caller: Caller
    revoked_ms: int | None
    expires_ms: int | None
    until_ms: int | None
    ends_ms: float
    """From then on, for whichever reason, it opens nothing."""


class _Snapshot:
    """Digest -> entry, for all keys as of one version."""

    def __init__(self) -> None:
        self.entries: dict[bytes, _Entry] = {}
        self.digests: dict[str, tuple[bytes, ...]] = {}
        """Name -> its secrets' digests."""

    def put(self, key: KeyRecord) -> None:
        """In place of what was known of the key."""
        for old in self.digests.get(key.name, ()):
            del self.entries[old]
        caller = key.caller()
        self.entries.update((secret.digest, _entry(key, secret, caller)) for secret in key.secrets)
        self.digests[key.name] = tuple(secret.digest for secret in key.secrets)

    def forget(self, before_ms: int) -> None:
        """What opened nothing any more at that time."""
        gone = {d for d, e in self.entries.items() if (e.revoked_ms or e.ends_ms) < before_ms}
        for name in {self.entries.pop(old).caller.key for old in gone}:
            self.digests[name] = tuple(d for d in self.digests[name] if d not in gone)
            if not self.digests[name]:
                del self.digests[name]


def _entry(key: KeyRecord, secret: Secret, caller: Caller) -> _Entry:
    ends = (ms for ms in (key.expires_ms, secret.until_ms) if ms is not None)
    ends_ms = 0.0 if key.revoked_ms is not None else min(ends, default=math.inf)
    return _Entry(caller, key.revoked_ms, key.expires_ms, secret.until_ms, ends_ms)


class CreatedKeys:
    """The created keys of one process. A secret is looked up by its keyed hash, so that no time tells any of it."""

    def __init__(
        self,
        database: Database,
        log: FilteringBoundLogger,
        every: float = POLL_SECONDS,
        now: Callable[[], int] = now_ms,
    ) -> None:
        """`every`: seconds between two looks. `now`: milliseconds since 1970."""
        self.store = KeyStore(database, now)
        self._log, self._every, self._now = log, every, now
        self._tasks = Tasks()
        self._keys = _Snapshot()
        self._reading = asyncio.Lock()
        self._mark: Mark | None = None
        self._forget_at = time.monotonic() + FORGET_SECONDS
        self._looked = asyncio.Event()
        self._down: str | None = None
        self._pause = every

    @property
    def known(self) -> bool:
        """They have been read."""
        return self._mark is not None

    def __len__(self) -> int:
        return len(self._keys.digests)

    def find(self, credential: bytes) -> Caller | None:
        """See Created."""
        if self._mark is None or not is_created(credential):
            return None
        entry = self._keys.entries.get(digest(self._mark.pepper, credential))
        if entry is None:
            return None
        if entry.ends_ms <= self._now():
            raise GatewayError("invalid_api_key", self._why(entry))
        return entry.caller

    def _why(self, entry: _Entry) -> str:
        name = entry.caller.key
        if entry.revoked_ms is not None:
            return f"The API key '{name}' was revoked on {plain(entry.revoked_ms)}."
        if entry.expires_ms is not None and entry.expires_ms <= self._now():
            return f"The API key '{name}' expired on {plain(entry.expires_ms)}."
        return f"This API key was replaced by a newer one of '{name}'; it lasted until {plain(entry.until_ms or 0)}."

    # -- beside the calls

    async def start(self) -> None:
        """Read all keys, waiting START_SECONDS at most, and keep up with them until `close`."""
        self._tasks.spawn(self._watch())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._looked.wait(), START_SECONDS)

    async def stop(self) -> None:
        """Ask the database no more."""
        await self._tasks.close()

    async def close(self) -> None:
        """Stop, and close the database."""
        await self.stop()
        await self.store.database.close()

    async def _watch(self) -> None:
        while True:
            await self._look()
            self._looked.set()
            await asyncio.sleep(self._pause)

    async def _look(self) -> None:
        try:
            if self._mark is None:
                await self.store.database.migrate()
            await self.refresh()
            self._tell(None)
        except DatabaseDown as down:
            self._tell(str(down))
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + FORGET_SECONDS
            self._keys.forget(self._now() - REMEMBERED_MS)

    async def refresh(self) -> None:
        """Take over what has changed. Raises DatabaseDown."""
        async with self._reading:
            mark, before = await self.store.mark(), self._mark
            if before is None or not before.leads_to(mark):
                await self._read_all(mark)
            elif mark != before:
                async for page in self.store.pages(before.version):
                    for key in page:
                        self._keys.put(key)
                self._mark = mark

    async def _read_all(self, mark: Mark) -> None:
        """At first, and where the database is another one than before."""
        fresh = _Snapshot()
        async for page in self.store.pages():
            for key in page:
                fresh.put(key)
        self._keys, self._mark = fresh, mark

    def _tell(self, down: str | None) -> None:
        """One line in the log for each change, and the pause before the next look."""
        self._pause = self._every if down is None else min(LONGEST_PAUSE, self._pause * 2)
        place = self.store.database.place.name
        if down is not None and self._down is None:
            text = "created keys cannot be read: those that are known stay as they are"
            self._log.error(text, database=place, reason=down, known=len(self))
        elif down is None and self._down is not None:
            self._log.info("created keys are read again", database=place, known=len(self))
        self._down = down
