"""Which of an upstream's addresses gets a call: the one that has seen the prompt's beginning, else the less loaded.

Prefix affinity keeps vLLM's prefix cache warm: rendezvous hashing of the prompt's leading bytes ranks the replicas, and
the first one in that order whose load is bearable is asked. Prompts too short for that go to the better of two random
replicas. One that refuses the connection costs nothing: the next one gets the call, and the first is left alone.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.body import Body
from gateway.call import Answer
from gateway.config.runtime import Target
from gateway.errors import UpstreamFailure
from gateway.upstream.breaker import Breaker, Group
from gateway.upstream.client import Client
from gateway.upstream.health import Seen

DEPTHS = (4096, 1024, 256)
"""Bytes of the prompt's JSON that are hashed: the most that the prompt fills. So a conversation that grows changes its
replica twice at most."""
FACTOR, SLACK = 1.5, 2.0
"""Affinity holds up to this many times the mean load of the replicas, plus so many calls."""


@dataclass(frozen=True, slots=True)
class Door:
    """One target of an upstream, ready to be called: its client, and the fixed head per endpoint."""

    target: Target
    client: Client
    heads: Mapping[str, bytes]


Ask = Callable[[Door], Awaitable[Answer]]
See = Callable[[Target], Seen | None]


class Replica:
    """One address and what is known of it."""

    def __init__(self, door: Door, breaker: Breaker, seen: See) -> None:
        self.door = door
        self.breaker = breaker
        self._seen = seen
        self._name = door.target.url.encode()

    @property
    def ready(self) -> bool:
        """It has not failed lately, and its engine has not said that it is not ready."""
        seen = self.seen
        return self.breaker.ready and (seen is None or seen.why is None)

    @property
    def seen(self) -> Seen | None:
        """The last look at its engine, unless that is long ago."""
        return self._seen(self.door.target)

    @property
    def work(self) -> float:
        """Its outstanding calls: ours, or all that its engine last reported; a full KV cache doubles them."""
        seen = self.seen
        busy = self.door.client.busy
        if seen is None or seen.load is None:
            return busy
        return max(busy, seen.load.running + seen.load.waiting) * (1 + seen.load.kv)

    def rank(self, prefix: bytes) -> bytes:
        """Rendezvous hashing: the replica with the highest rank is a prefix's home, whatever the others are."""
        return hashlib.blake2b(prefix + self._name, digest_size=8).digest()


class Replicas:
    """The addresses of one model's upstream: what one model does says nothing about another."""

    def __init__(
        self,
        doors: Sequence[Door],
        group: Group,
        seen: See = lambda target: None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        """`seen`: the last look at an engine; `watch`: told of each call, where engines are looked at while there are
        any."""
        self.group = group
        self._all = tuple(Replica(d, b, seen) for d, b in zip(doors, group.breakers, strict=True))
        self._only = self._all[0] if len(doors) == 1 else None
        self._watch = watch

    @property
    def down(self) -> str | None:
        """Why there is nobody to ask: each engine was seen to be down a moment ago. None: somebody, or nobody knows."""
        if self._watch is None:
            return None
        seen = [replica.seen for replica in self._all]
        if not all(s is not None and s.down for s in seen):
            return None
        self._watch()  # whoever is turned away wants it back as well
        return next((s.why for s in seen if s is not None), None)

    def other(self, asked: Collection[Replica]) -> bool:
        """Some address is ready that is not among those."""
        return self._only is None and any(replica.ready and replica not in asked for replica in self._all)

    async def send(self, body: Body, ask: Ask, asked: set[Replica] | None = None) -> Answer:
        """One call. Should a replica refuse the connection, the next one is asked: nothing was sent. Those in `asked`
        are not asked again while another one is ready; those that this call asks are added.

        Raises UpstreamFailure.
        """
        if self._watch is not None:
            self._watch()
        if self._only is not None:
            answer = await self._only.breaker.through(ask(self._only.door))
            answer.ended = self._only.breaker.ended
            return answer
        refused: UpstreamFailure | None = None
        asked = set() if asked is None else asked
        order = list(self.order(body))
        if not asked.isdisjoint(order):
            order = [replica for replica in order if replica.ready and replica not in asked] or order
        for replica in order:
            asked.add(replica)
            try:
                answer = await replica.breaker.through(ask(replica.door))
                answer.ended = replica.breaker.ended
                return answer
            except UpstreamFailure as failure:
                if failure.cause != "connect":
                    raise
                refused = failure.with_traceback(None)  # whose frames hold this name
        raise refused or UpstreamFailure("connect", "the upstream has no address")

    def order(self, body: Body) -> Iterator[Replica]:
        """The replicas in the order to ask them; those that are left alone come last, the soonest back first."""
        ready = [replica for replica in self._all if replica.ready]
        if ready:
            first = _best(ready, _prefix(body))
            yield first
            yield from sorted((r for r in ready if r is not first), key=lambda r: r.work)
        yield from sorted((r for r in self._all if r not in ready), key=lambda r: r.breaker.until)


def _best(replicas: Sequence[Replica], prefix: bytes | None) -> Replica:
    if len(replicas) == 1:
        return replicas[0]
    if prefix is None:
        return min(random.sample(replicas, 2), key=lambda r: r.work)
    work = {replica: replica.work for replica in replicas}
    bearable = FACTOR * sum(work.values()) / len(work) + SLACK
    return max((r for r in replicas if work[r] <= bearable), key=lambda r: r.rank(prefix))


def _prefix(body: Body) -> bytes | None:
    """A digest of the prompt's beginning; None: the prompt is too short for a cache to matter."""
    span = body.spans.get("messages") or body.spans.get("prompt")
    if span is None:
        return None
    start, end = span
    depth = next((depth for depth in DEPTHS if depth <= end - start), None)
    return hashlib.blake2b(body.raw[start : start + depth], digest_size=16).digest() if depth else None
