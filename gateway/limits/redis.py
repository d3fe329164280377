"""Limits in Redis, shared by everyone who uses it. One script decides on a call, on the clock of Redis.

All keys have one hash tag: they stay on one node of a cluster, which is what makes one decision out of many limits.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

from hiredis import ReplyError

from gateway import clock
from gateway.config.redis_url import Address
from gateway.limits.backlog import Backlog
from gateway.limits.link import ANSWER, Heard, Link, pack
from gateway.limits.store import Demand, Rate, Settled, Slot, StoreDown, Taken

SILENCE = 2.0
"""Seconds without any answer after which a connection is given up; until then late answers are worth hearing."""
MOVES = 3
"""Redirections of a cluster that are followed in a row."""
_RENEWED_AT_ONCE = 500
_PASSING = (
    *("READONLY", "MOVED", "ASK ", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "BUSY", "OOM", "MISCONF"),
    *("NOREPLICAS", "NOAUTH", "NOPERM"),
)
"""Errors that say nothing about the command, only that it cannot be done here and now."""

_MOVED = re.compile(r"MOVED \d+ (\S*:\d+)$")

Part = str | int


@dataclass(frozen=True, slots=True)
class Script:
    """One of `scripts/`."""

    text: str
    digest: str

    @classmethod
    def load(cls, name: str) -> Script:
        """`now.lua` goes before it."""
        folder = files("gateway.limits") / "scripts"
        text = "".join((folder / f"{part}.lua").read_text("utf-8") for part in ("now", name))
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

    def by_digest(self, keys: Sequence[str], args: Sequence[Part]) -> bytes:
        """The usual command."""
        return pack("EVALSHA", self.digest, len(keys), *keys, *args)

    def whole(self, keys: Sequence[str], args: Sequence[Part]) -> bytes:
        """For a Redis that does not know the script, or no longer; it remembers it."""
        return pack("EVAL", self.text, len(keys), *keys, *args)


def unknown_script(answer: object) -> bool:
    """Redis does not know the script; nothing was done."""
    return isinstance(answer, ReplyError) and str(answer).startswith("NOSCRIPT")


class RedisStore:
    """See `store.Store`. `connect` first; when a connection is lost or an answer is late, everything raises StoreDown
    at once or after a quarter of a second (`answer`), until `connect` has succeeded again. `took` is told how long each
    take took."""

    def __init__(
        self,
        address: Address,
        period: float = 60.0,
        lease_seconds: float = 30.0,
        prefix: str = "{turnout}",
        took: Callable[[float], None] = lambda seconds: None,
        answer: float = ANSWER,
    ) -> None:
        self.address = address
        self.down: Callable[[str], None] = lambda why: None
        """Told why, whenever Redis turns out not to work."""
        self._node = address
        self._period = round(period * 1e6)
        self._lease_time = round(lease_seconds * 1e6)
        self._prefix = prefix
        self._took = took
        self._answer = answer
        self._take, self._settle, self._renew, self._beat = map(Script.load, ("take", "settle", "renew", "beat"))
        self._link: Link | None = None
        self.backlog = Backlog()

    # -- connection

    async def connect(self) -> None:
        """Have a connection over which takes work; then Redis is told what it missed. Raises StoreDown."""
        for _ in range(MOVES):
            node = self._node
            try:
                await self._try()
                break
            except StoreDown:
                if self._node is node:
                    self._node = self.address
                    raise
        else:
            raise StoreDown("redirected again and again")
        for lease, settled, unsure in self.backlog.drain():
            self._send_settled(lease, settled, unsure)

    async def _try(self) -> None:
        if self._link is not None and not self._link.lost and self._link.silent > SILENCE:
            self._link.close("silent for too long")
        if self._link is None or self._link.lost:
            self._link = await Link.open(self._node, self._told, self._answer)
        await self.take("probe", (Rate("probe", 1_000_000, 1),))
        for script, args in ((self._settle, ("", self._period, "sure")), (self._renew, (self._lease_time,))):
            await self._run(script, (), args, lambda _: None)  # known from now on: no settlement has to be sent twice

    async def finish(self) -> None:
        """Wait until all that was sent is answered, as long as one waits for any answer."""
        if self._link is not None:
            with suppress(StoreDown):
                await self._link.ask(pack("PING"), lambda _: None)

    def close(self) -> None:
        """End the connection at once."""
        self.down = lambda why: None
        if self._link is not None:
            self._link.close()

    def _told(self, why: str) -> None:
        self.down(why)

    # -- what a store does

    async def take(self, lease: str, demands: Sequence[Demand]) -> Taken:
        """See `store.Store`."""
        args: list[Part] = ["take", lease, self._period, self._lease_time]
        keys = self._flatten(demands, args)
        began = clock.now()
        answer = await self._run(self._take, keys, args, partial(self._undo, lease, demands))
        self._took(clock.now() - began)
        return _taken(answer, len(demands))

    async def peek(self, demands: Sequence[Demand]) -> tuple[int, ...]:
        """See `store.Store`."""
        args: list[Part] = ["peek", "", self._period, self._lease_time]
        keys = self._flatten(demands, args)
        return _taken(await self._run(self._take, keys, args, lambda _: None), len(demands)).left

    def settle(self, lease: str, settled: Sequence[Settled]) -> None:
        """See `store.Store`. What cannot be sent is sent after the next `connect`, buckets aside."""
        self._send_settled(lease, settled, False)

    def charge(self, settled: Sequence[Settled]) -> None:
        """Charge purses with what was not taken from here."""
        self._send_settled("", settled, False)

    def renew(self, leases: Iterable[tuple[str, Sequence[Demand]]]) -> None:
        """See `store.Store`."""
        every = [(lease, d) for lease, demands in leases for d in demands if not isinstance(d, Rate)]
        for start in range(0, len(every), _RENEWED_AT_ONCE):
            keys: list[str] = []
            args: list[Part] = [self._lease_time]
            for lease, d in every[start : start + _RENEWED_AT_ONCE]:
                keys.append(self._key("slot" if isinstance(d, Slot) else "held", d.key))
                args += ("slot" if isinstance(d, Slot) else "purse", lease)
            self._tell(self._renew, keys, args, lambda _: None)

    async def beat(self, name: str, seconds: float) -> int:
        """This process lives; how many live that said so in the last `seconds`. Raises StoreDown."""
        key = self._key("replicas", "all")
        answer = await self._run(self._beat, [key], [name, round(seconds * 1e6)], lambda _: None)
        if not isinstance(answer, int):
            raise StoreDown("an answer without sense")
        return answer

    def leave(self, name: str) -> None:
        """This process ends."""
        if self._link is not None and not self._link.lost:
            self._link.tell(pack("ZREM", self._key("replicas", "all"), name), lambda _: None)

    async def get(self, key: bytes) -> bytes | None:
        """What `put` keeps under this name. Raises StoreDown."""
        if self._link is None:
            raise StoreDown("no connection")
        answer = await self._link.ask(pack("GET", self._kept(key)), lambda _: None)
        if isinstance(answer, ReplyError):
            self._learn(str(answer))
            raise StoreDown(str(answer))
        return answer if isinstance(answer, bytes) else None

    def put(self, key: bytes, value: bytes, seconds: int) -> None:
        """Keep something for so long; sent, not waited for, and lost where it cannot be sent."""
        if self._link is not None and not self._link.lost:
            self._link.tell(pack("SET", self._kept(key), value, "EX", seconds), lambda _: None)

    def _kept(self, key: bytes) -> str:
        return self._key("kept", key.hex())

    # -- how

    async def _run(self, script: Script, keys: Sequence[str], args: Sequence[Part], unheard: Heard) -> object:
        link, since = self._link, clock.now()
        if link is None:
            raise StoreDown("no connection")
        answer = await link.ask(script.by_digest(keys, args), unheard, since)
        if unknown_script(answer):
            answer = await link.ask(script.whole(keys, args), unheard, since)
        if isinstance(answer, ReplyError):
            self._learn(str(answer))
            raise StoreDown(str(answer))
        return answer

    def _tell(self, script: Script, keys: Sequence[str], args: Sequence[Part], heard: Heard) -> None:
        """Send without waiting; `heard` gets StoreDown as well where nothing could be sent."""

        def first(answer: object) -> None:
            if unknown_script(answer):
                self._write(script.whole(keys, args), heard)
            else:
                heard(answer)

        self._write(script.by_digest(keys, args), first)

    def _write(self, command: bytes, heard: Heard) -> None:
        try:
            if self._link is None:
                raise StoreDown("no connection")
            self._link.tell(command, heard)
        except StoreDown as down:
            heard(_Unsent(str(down)))

    def _send_settled(self, lease: str, settled: Sequence[Settled], unsure: bool) -> None:
        args: list[Part] = [lease, self._period, "unsure" if unsure else "sure"]
        keys: list[str] = []
        for s in settled:
            d = s.demand
            if isinstance(d, Rate):
                keys.append(self._key("rate", d.key))
                args += ("rate", d.capacity, s.used - s.reserved)
            elif isinstance(d, Slot):
                keys.append(self._key("slot", d.key))
                args.append("slot")
            else:
                keys += (self._key("purse", d.key), self._key("held", d.key))
                args += ("purse", d.floor, d.seconds, s.used)
        if keys:
            self._tell(self._settle, keys, args, partial(self._heard_settled, lease, settled, unsure))

    def _heard_settled(self, lease: str, settled: Sequence[Settled], unsure: bool, answer: object) -> None:
        if isinstance(answer, StoreDown):
            self.backlog.add(lease, settled, unsure or not isinstance(answer, _Unsent))
        elif isinstance(answer, ReplyError):
            if any(code in str(answer) for code in _PASSING):
                self.backlog.add(lease, settled, unsure)
            self._learn(str(answer))
            self.down(str(answer))

    def _undo(self, lease: str, demands: Sequence[Demand], answer: object) -> None:
        """Nobody waits for this take any more."""
        if isinstance(answer, ReplyError):
            return
        try:
            taken = _taken(answer, len(demands))
        except StoreDown:
            self.backlog.add(lease, [Settled(d, 0, 0) for d in demands], unsure=True)
        else:
            if taken.refused is None:
                self.settle(lease, [Settled(d, r, 0) for d, r in zip(demands, taken.reserved, strict=True)])

    def _learn(self, error: str) -> None:
        """Errors that say where to go instead: the named node, or whoever has the address now."""
        moved = _MOVED.match(error)
        if moved:
            self._node = self._node.elsewhere(moved[1])
        if self._link is not None and (moved or "READONLY" in error):
            self._link.close(error)

    def _flatten(self, demands: Sequence[Demand], args: list[Part]) -> list[str]:
        """Keys of the demands; their numbers go to `args`."""
        keys: list[str] = []
        for d in demands:
            if isinstance(d, Rate):
                keys.append(self._key("rate", d.key))
                args += ("rate", d.capacity, d.cost)
            elif isinstance(d, Slot):
                keys.append(self._key("slot", d.key))
                args += ("slot", d.capacity)
            else:
                keys += (self._key("purse", d.key), self._key("held", d.key))
                args += ("purse", d.capacity, d.cost, d.floor, d.seconds)
        return keys

    def _key(self, kind: str, key: str) -> str:
        return f"{self._prefix}:{kind}:{key}"


class _Unsent(StoreDown):
    """Redis has certainly not heard it."""


def _taken(answer: object, demands: int) -> Taken:
    """Raises StoreDown."""
    if not isinstance(answer, list) or len(answer) != 2 + 2 * demands or not all(isinstance(n, int) for n in answer):
        raise StoreDown("an answer without sense")
    refused, wait, left = answer[0], answer[1], tuple(answer[2 : 2 + demands])
    if refused:
        return Taken(refused - 1, math.inf if wait < 0 else wait / 1e6, left)
    return Taken(None, 0.0, left, tuple(answer[2 + demands :]))
