"""Several processes behind one listening socket, watched by their parent: what `--workers` does."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway import clock
from gateway.clock import Tasks
from gateway.config import Runtime
from gateway.telemetry.numbers import fold

STEADY_SECONDS = 10.0
"""A worker that lived this long was started well; one that did not counts towards `TRIES`."""
TRIES = 5
"""Starts in a row that may fail before the parent gives up."""
LONGEST_PAUSE = 5.0
Listeners = tuple[socket.socket, ...]
"""The gateway's listening socket; then, where `gateway.metrics` is a port, that of the metrics."""
FINE = (0, -signal.SIGTERM, -signal.SIGINT)
"""Ends after a signal; one that is still starting ends by the signal itself."""


def run_workers(
    runtime: Runtime, listeners: Listeners, count: int, drain: float, started: Callable[[], None] = lambda: None
) -> int:
    """Run so many workers until a signal, then for `drain` seconds at most; the exit code. `started` is called once the
    first one answers."""
    with asyncio.Runner() as runner:
        return runner.run(serve_with_workers(runtime, listeners, count, drain, started))


async def serve_with_workers(
    runtime: Runtime, listeners: Listeners, count: int, drain: float, started: Callable[[], None] = lambda: None
) -> int:
    """The same, in a running loop."""
    for listener in listeners:
        listener.listen(2048)
    shared = Path(tempfile.mkdtemp(prefix="turnout-workers-"))
    alive, kept = os.pipe()
    crew = Crew(runtime, listeners, shared, alive, drain)
    try:
        return await crew.run(count, started)
    finally:
        os.close(kept)  # workers that are still there end with their parent
        os.close(alive)
        shutil.rmtree(shared, ignore_errors=True)


@dataclass(slots=True)
class Crew:
    """The workers of one gateway."""

    runtime: Runtime
    listeners: Listeners
    shared: Path
    alive: int
    """The reading end of a pipe that the parent holds: its end is the parent's."""
    drain: float
    """Seconds that running calls have after a signal."""
    _running: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    _stopping: bool = False
    _failed: bool = False

    async def run(self, count: int, started: Callable[[], None]) -> int:
        """See `run_workers`."""
        loop, tasks = asyncio.get_running_loop(), Tasks()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._pass_on, number)
        try:
            places = [tasks.spawn(self._place()) for _ in range(count)]
            if await self._until_answering(places):
                started()
            await asyncio.gather(*places)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)
            await tasks.close()
        return int(self._failed)

    async def _place(self) -> None:
        """One worker after the other, until the end."""
        failures = 0
        while not self._stopping:
            began = clock.now()
            process = await self._start()
            code = await process.wait()
            del self._running[process.pid]
            fold(self.shared, process.pid)
            if self._stopping:
                self._failed |= code not in FINE
                return
            failures = 0 if clock.now() - began > STEADY_SECONDS else failures + 1
            self._say(f"worker {process.pid} has ended ({_ending(code)})")
            if failures >= TRIES or code == 2:
                self._say("workers cannot be kept running: giving up")
                self._failed = True
                self._pass_on(signal.SIGTERM)
                return
            await asyncio.sleep(min(LONGEST_PAUSE, 0.1 * 2**failures))

    async def _start(self) -> asyncio.subprocess.Process:
        gateway, listening = self.runtime.gateway, [listener.fileno() for listener in self.listeners]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.cli.worker", str(self.runtime.file), gateway.host,
            ",".join(map(str, listening)), str(self.alive), str(self.shared), str(self.drain),
            pass_fds=(*listening, self.alive), stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
            preexec_fn=_deaf_to_reloads,
        )  # fmt: skip
        self._running[process.pid] = process
        if self._stopping:  # the signal came before the worker could hear it
            process.terminate()
        return process

    def _pass_on(self, number: signal.Signals) -> None:
        self._stopping |= number != signal.SIGHUP
        for process in self._running.values():
            process.send_signal(number)

    async def _until_answering(self, places: list[asyncio.Task[None]]) -> bool:
        """Wait for the first worker's numbers, which it publishes when it serves; False: all have ended."""
        while not any(place.done() for place in places):
            if any(self.shared.glob("*.names")):
                return True
            await asyncio.sleep(0.05)
        return False

    def _say(self, text: str) -> None:
        print(f"turnout: {text}", file=sys.stderr, flush=True)


def _deaf_to_reloads() -> None:
    """A worker that is still starting reads the newest file anyway; the signal would end it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
