"""Several engines at once: started together, ready together, stopped together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from gateway.clock import Tasks
from serving.engine.command import Launch
from serving.engine.diagnose import diagnose
from serving.engine.errors import EngineFailed
from serving.engine.preflight import port_problem
from serving.engine.process import Process
from serving.engine.ready import Progress, Stages, ready

START_TIMEOUT = 30 * 60.0
"""Seconds: hundreds of GiB of weights may come from a slow disk."""
GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL."""


def to_stderr(line: str) -> None:
    """Where the engines' logs go."""
    print(line, file=sys.stderr, flush=True)


def unseen(progress: Progress) -> None:
    """For a caller that shows no progress."""


class Engines:
    """The engines of `launches`, as an asynchronous context manager: started on entry, gone after exit.

    `environ` is what they inherit, `say` gets every line of their logs after the engine's name; `start_timeout` and
    `grace` are seconds.
    """

    def __init__(
        self,
        launches: Iterable[Launch],
        environ: Mapping[str, str],
        on_progress: Callable[[Progress], None] = unseen,
        say: Callable[[str], None] = to_stderr,
        start_timeout: float = START_TIMEOUT,
        grace: float = GRACE,
    ) -> None:
        self._launches = tuple(launches)
        self._environ = environ
        self._on_progress = on_progress
        self._say = say
        self._start_timeout = start_timeout
        self._grace = grace
        self._tasks = Tasks()
        self._replicas: list[_Replica] = []
        self._stopping = False

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
                await self._start(launch)
        except BaseException:
            await self.stop()
            raise

    async def ready(self) -> None:
        """Return when all of them are ready. EngineFailed with the first one that ends or refuses to work."""
        try:
            async with asyncio.TaskGroup() as group:
                for replica in self._replicas:
                    group.create_task(self._come_up(replica))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def failure(self) -> EngineFailed:
        """Wait until one of them has ended, and tell why."""
        done, _ = await asyncio.wait({replica.end for replica in self._replicas}, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()

    async def stop(self) -> None:
        """End all of them; returns when the last process is gone, at the latest after the grace time."""
        self._stopping = True
        for replica in self._replicas:
            replica.process.stop()
        await asyncio.gather(*(replica.end for replica in self._replicas))
        await self._tasks.close()

    async def _start(self, launch: Launch) -> None:
        stages = Stages(launch.name, self._on_progress)

        def on_line(line: str) -> None:
            stages.read(line)
            self._say(f"{launch.name} | {line}")

        process = await Process.start(launch.command, self._environ, on_line, self._grace)
        self._replicas.append(_Replica(launch, stages, process, self._tasks))

    async def _come_up(self, replica: _Replica) -> None:
        probing = self._tasks.spawn(ready(replica.launch, replica.stages, self._start_timeout))
        try:
            await asyncio.wait({probing, replica.end}, return_when=asyncio.FIRST_COMPLETED)
            if replica.end.done():
                raise replica.end.result()
            probing.result()
        finally:
            probing.cancel()
        replica.end.add_done_callback(self._report)

    def _report(self, end: asyncio.Task[EngineFailed]) -> None:
        """One that was ready has ended."""
        if not self._stopping:
            self._say(f"turnout: {end.result()}")


class _Replica:
    """One running engine."""

    def __init__(self, launch: Launch, stages: Stages, process: Process, tasks: Tasks) -> None:
        self.launch = launch
        self.stages = stages
        self.process = process
        self.end: asyncio.Task[EngineFailed] = tasks.spawn(self._run())
        """Done when the engine has ended, with the reason."""

    async def _run(self) -> EngineFailed:
        code = await self.process.run()
        return EngineFailed(self.launch.name, diagnose(self.process.tail, code))
