"""One replica's life: started, made ready, watched, started again when it ends by itself, and in the end given up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.clock import Tasks, now
from serving.engine.command import Launch
from serving.engine.diagnose import diagnose
from serving.engine.errors import EngineFailed
from serving.engine.liveness import PATIENCE, Patience, lifeless
from serving.engine.process import Process
from serving.engine.ready import Progress, Stages, ready

State = Literal["starting", "ready", "restarting", "draining", "ended", "failed"]

WINDOW = 600.0
"""Seconds in which restarts are counted: one that ran well for so long begins with a clean sheet."""
LEAVE_SECONDS = 5.0
"""For an engine to leave its GPUs once its last call has ended."""
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds before the first, the second, ... restart within the window; the last one from then on."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all replicas of one supervisor have in common."""

    environ: Mapping[str, str]
    """What engines inherit."""
    on_progress: Callable[[Progress], None]
    say: Callable[[str], None]
    """Gets every line of their logs after the engine's name, and one line for each change."""
    start_timeout: float
    grace: float
    """Seconds between SIGTERM and SIGKILL."""
    patience: Patience = PATIENCE
    pauses: tuple[float, ...] = PAUSES


class Replica:
    """One engine, by whichever process it runs."""

    def __init__(self, launch: Launch, setting: Setting, tasks: Tasks) -> None:
        self.launch = launch
        self.state: State = "starting"
        self.over: asyncio.Future[EngineFailed] = asyncio.get_running_loop().create_future()
        """Done when nobody will start it again, with the reason."""
        self._setting, self._tasks = setting, tasks
        self._process: Process | None = None
        self._run: asyncio.Task[int] | None = None
        self._life: asyncio.Task[None] | None = None
        self._restarts: deque[float] = deque()
        self._why: str | None = None
        """Why its process was ended by its supervisor."""
        self._stopping = False

    @property
    def restarts(self) -> int:
        """In the last WINDOW."""
        while self._restarts and self._restarts[0] < now() - WINDOW:
            self._restarts.popleft()
        return len(self._restarts)

    async def start(self) -> None:
        """Start its process and return at once."""
        stages = self._stages = Stages(self.launch.name, self._setting.on_progress)

        def on_line(line: str) -> None:
            stages.read(line)
            self._setting.say(f"{self.launch.name} | {line}")

        setting = self._setting
        self._why = None
        grace = max(setting.grace, self.launch.drain + LEAVE_SECONDS)
        self._process = await Process.start(self.launch.command, setting.environ, on_line, grace)
        self._run = self._tasks.spawn(self._process.run())

    async def come_up(self) -> None:
        """Return when it is ready. EngineFailed when it ends before, or refuses to work; it may still run then."""
        assert self._run is not None
        probing = self._tasks.spawn(ready(self.launch, self._stages, self._setting.start_timeout))
        try:
            await asyncio.wait({probing, self._run}, return_when=asyncio.FIRST_COMPLETED)
            if self._run.done():
                raise self._failure()
            probing.result()
        finally:
            probing.cancel()
        self.state = "ready"

    def supervise(self) -> None:
        """From now on it is watched, and started again when it ends."""
        self._life = self._tasks.spawn(self._live())

    def drain(self) -> None:
        """It gets no new calls: what it does now is not for its supervisor to mend."""
        self.state = "draining"
        self._stopping = True

    async def stop(self) -> None:
        """End it; returns when it is gone, at the latest after the grace time."""
        self._stopping = True
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        if self._process is not None and self._run is not None:
            self._process.stop()
            await asyncio.gather(self._run, return_exceptions=True)
        self.state = "ended"
        if not self.over.done():
            self.over.set_result(EngineFailed(self.launch.name, "it was stopped"))

    async def _live(self) -> None:
        while True:
            failure = await self._end()
            if self._stopping:
                return
            if self.restarts >= self.launch.restarts:
                return self._give_up(failure)
            pause = self._setting.pauses[min(self.restarts, len(self._setting.pauses) - 1)]
            self._restarts.append(now())
            self.state = "restarting"
            count = f"restart {self.restarts} of {self.launch.restarts} in {WINDOW / 60:g} min"
            self._setting.say(f"turnout: {failure}; it is started again in {pause:g} s ({count})")
            await asyncio.sleep(pause)
            await self._again()

    async def _again(self) -> None:
        """Start it; one that does not come up ends, which `_live` sees."""
        assert self._process is not None
        try:
            await self.start()
            await self.come_up()
        except (EngineFailed, OSError) as failure:
            self._why = failure.reason if isinstance(failure, EngineFailed) else str(failure)
            self._process.kill()
        else:
            self._setting.say(f"turnout: engine {self.launch.name}: ready again on port {self.launch.port}")

    async def _end(self) -> EngineFailed:
        """Wait until its process has ended, by itself or because it does not work any more."""
        assert self._run is not None
        assert self._process is not None
        if self.state == "ready":
            watching = self._tasks.spawn(lifeless(self.launch, self._setting.patience))
            try:
                await asyncio.wait({watching, self._run}, return_when=asyncio.FIRST_COMPLETED)
                if not self._run.done() and not self._stopping:
                    self._why = watching.result()
                    self._process.kill()
            finally:
                watching.cancel()
        await asyncio.wait({self._run})
        return self._failure()

    def _failure(self) -> EngineFailed:
        """Why its process has ended."""
        assert self._run is not None
        assert self._process is not None
        why = self._why or diagnose(self._process.tail, self._run.result())
        return EngineFailed(self.launch.name, why)

    def _give_up(self, failure: EngineFailed) -> None:
        self.state = "failed"
        times = f" after {self.restarts} restarts in {WINDOW / 60:g} min" if self.restarts else ""
        self._setting.say(f"turnout: {failure}" + (f"; given up{times}" if times else ""))
        self.over.set_result(failure)
