"""A rolling restart: each replica's successor is ready before the replica ends, and no call fails for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from serving.engine.command import Launch
from serving.engine.errors import EngineFailed
from serving.engine.liveness import until_idle
from serving.engine.preflight import free_port, port_problem
from serving.engine.replica import Replica

FOLLOW_SECONDS = 2.0
"""After a replica has moved, until every gateway sends its calls to the new port: they look every 0.4 s."""
DRAIN_SECONDS = 600.0
"""For the calls of the old one, at most."""


class Desk(Protocol):
    """Where restarts are asked for and gateways hear of ports: the database of the file (`gateway.cli.desk`)."""

    async def asked(self) -> frozenset[str]:
        """The upstreams whose engines are to be restarted. Empty while it cannot be known."""

    async def tell(self, upstream: str, state: str | None) -> None:
        """How far a restart is; None: it is over. Raises EngineFailed where that cannot be told."""

    async def move(self, upstream: str, replica: int, port: int) -> None:
        """This replica listens on that port. Raises EngineFailed where gateways cannot be told."""


async def roll(
    replicas: list[Replica],
    upstream: str,
    desk: Desk,
    successor: Callable[[Launch], Replica],
    say: Callable[[str], None],
    plan: Mapping[int, Launch],
    follow: float = FOLLOW_SECONDS,
    drain: float = DRAIN_SECONDS,
) -> None:
    """Replace every replica of `upstream` in the list by its successor, which `plan` has by the replica's number.
    EngineFailed where one does not come up or cannot be told of: it and the ones after it then go on as they were."""
    places = [place for place, replica in enumerate(replicas) if replica.launch.upstream == upstream]
    if {replicas[place].launch.replica for place in places} != plan.keys():
        text = f"its file has {len(plan)} replicas, {len(places)} run: that takes a start, not a rolling restart"
        raise EngineFailed(upstream, text)
    for number, place in enumerate(places, 1):
        old = replicas[place]
        which = f"replica {number} of {len(places)}"
        await desk.tell(upstream, f"{which}: its successor starts")
        new = successor(plan[old.launch.replica].on(_spare(replicas)))
        try:
            await new.start()
            await new.come_up()
            await desk.move(upstream, old.launch.replica, new.launch.port)
        except BaseException:
            await new.stop()
            raise
        say(f"turnout: engine {old.launch.name}: its successor is ready on port {new.launch.port}")
        replicas[place] = new
        new.supervise()
        old.drain()
        try:
            with suppress(EngineFailed):  # it has moved, whoever can be told of it
                await desk.tell(upstream, f"{which}: the old one ends its calls")
            await asyncio.sleep(follow)
            if not await until_idle(old.launch, drain):
                say(f"turnout: engine {old.launch.name}: calls still run after {drain:g} s, it ends all the same")
        finally:
            await old.stop()
        say(f"turnout: engine {old.launch.name}: the old one on port {old.launch.port} has ended")


def _spare(replicas: Sequence[Replica]) -> int:
    """The first free port after those of the file, else any."""
    first = max(replica.launch.port for replica in replicas) + 1
    near = (port for port in range(first, min(first + 20, 65536)) if port_problem(port) is None)
    return next(near, None) or free_port()
