"""Several engines at once: started together, ready together, kept running, replaced one by one, stopped together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from gateway.clock import Tasks
from serving.engine.command import Launch
from serving.engine.errors import EngineFailed
from serving.engine.liveness import PATIENCE, Patience
from serving.engine.preflight import port_problem
from serving.engine.ready import Progress
from serving.engine.replica import PAUSES, Replica, Setting
from serving.engine.rolling import Desk, roll

START_TIMEOUT = 30 * 60.0
"""Seconds: hundreds of GiB of weights may come from a slow disk."""
GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL."""
POLL_SECONDS = 1.0
"""Between two questions whether a restart is wanted."""


def to_stderr(line: str) -> None:
    """Where the engines' logs go."""
    print(line, file=sys.stderr, flush=True)


Replan = Callable[[str], Mapping[int, Launch]]
"""An upstream's name -> what to start for its replicas now, by number. Raises EngineFailed where it cannot start."""


def unseen(progress: Progress) -> None:
    """For a caller that shows no progress."""


class Engines:
    """The engines of `launches`, as an asynchronous context manager: started on entry, gone after exit.

    `environ` is what they inherit, `say` gets every line of their logs after the engine's name; `start_timeout` and
    `grace` are seconds, `patience` and `pauses` say when one counts as lifeless and how long a restart waits. `replan`
    is asked before a rolling restart, in a thread; without it the launches are used again.
    """

    def __init__(
        self,
        launches: Iterable[Launch],
        environ: Mapping[str, str],
        on_progress: Callable[[Progress], None] = unseen,
        say: Callable[[str], None] = to_stderr,
        start_timeout: float = START_TIMEOUT,
        grace: float = GRACE,
        patience: Patience = PATIENCE,
        pauses: tuple[float, ...] = PAUSES,
        replan: Replan | None = None,
    ) -> None:
        self._launches = tuple(launches)
        self._replan = replan or self._as_before
        self._say = say
        self._setting = Setting(environ, on_progress, say, start_timeout, grace, patience, pauses)
        self._tasks = Tasks()
        self._replicas: list[Replica] = []
        self._attending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all of them and return at once. EngineFailed, and none left running, where a port is taken."""
        for launch in self._launches:
            if problem := port_problem(launch.port):
                raise EngineFailed(launch.name, problem)
        try:
            for launch in self._launches:
                replica = self._replica(launch)
                await replica.start()
                self._replicas.append(replica)
        except BaseException:
            await self.stop()
            raise

    async def ready(self) -> None:
        """Return when all of them are ready; from then on they are kept running. EngineFailed with the first one that
        ends or refuses to work."""
        try:
            async with asyncio.TaskGroup() as group:
                for replica in self._replicas:
                    group.create_task(replica.come_up())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        for replica in self._replicas:
            replica.supervise()

    async def failure(self) -> EngineFailed:
        """Wait until one of them has ended and is not started again, and tell why."""
        over = {replica.over for replica in self._replicas}
        done, _ = await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()

    async def all_over(self) -> EngineFailed:
        """Wait until none of them is left, and tell why the last one has ended."""
        while True:
            left = [replica.over for replica in self._replicas if not replica.over.done()]
            if not left:
                return self._replicas[-1].over.result()
            await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)

    def serve(self, desk: Desk, every: float = POLL_SECONDS, **seconds: float) -> None:
        """Restart engines one replica after the other when it is asked for at `desk`; `seconds` go to `roll`."""
        self._attending = self._tasks.spawn(self._attend(desk, every, seconds))

    async def _attend(self, desk: Desk, every: float, seconds: Mapping[str, float]) -> None:
        while True:
            for upstream in sorted(await desk.asked() & {launch.upstream for launch in self._launches}):
                await self._roll(upstream, desk, seconds)
            await asyncio.sleep(every)

    async def _roll(self, upstream: str, desk: Desk, seconds: Mapping[str, float]) -> None:
        state: str | None = None
        try:
            plan = await asyncio.to_thread(self._replan, upstream)
            await roll(self._replicas, upstream, desk, self._replica, self._say, plan, **seconds)
        except (EngineFailed, OSError) as failure:
            state = f"failed: {failure}"
            self._say(f"turnout: engine {upstream}: the rolling restart ends, what ran goes on: {failure}")
        try:
            await desk.tell(upstream, state)
        except EngineFailed as failure:
            self._say(f"turnout: {failure}")

    def _as_before(self, upstream: str) -> Mapping[int, Launch]:
        return {launch.replica: launch for launch in self._launches if launch.upstream == upstream}

    def _replica(self, launch: Launch) -> Replica:
        return Replica(launch, self._setting, self._tasks)

    def states(self) -> list[dict[str, Any]]:
        """By replica: its name, port, state and restarts in the last ten minutes."""
        return [
            {"name": r.launch.name, "port": r.launch.port, "state": r.state, "restarts": r.restarts}
            for r in self._replicas
        ]

    async def stop(self) -> None:
        """End all of them; returns when the last process is gone, at the latest after the grace time."""
        if self._attending is not None:  # a restart under way ends the one that is in no list
            self._attending.cancel()
            await asyncio.gather(self._attending, return_exceptions=True)
        await asyncio.gather(*(replica.stop() for replica in self._replicas))
        await self._tasks.close()
