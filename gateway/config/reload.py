"""Reload by SIGHUP and by a changed file: the whole file is validated off the loop, then handed on as one value."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from watchfiles import Change, awatch

from gateway.config.load import load
from gateway.config.problems import ConfigError, Problem
from gateway.config.runtime import Runtime

SETTLE_SECONDS = 0.05
"""A file that has not changed for this long is taken as completely written."""
SETTLE_ROUNDS = 20
ASK_SECONDS = 20.0

Stamp = tuple[int, int, int] | None


class Reloader:
    """Watches one configuration file and the `.env` beside it, from `digest` on.

    Exactly one callback is called for each reload: `apply` with the new configuration, `same` where nothing in it
    changed, `refuse` where it cannot be used and the old one stays. All run in the event loop and must not raise.
    """

    def __init__(
        self,
        path: Path,
        digest: str,
        *,
        apply: Callable[[Runtime], None],
        refuse: Callable[[ConfigError], None],
        same: Callable[[], None],
        environ: Mapping[str, str] | None = None,
        load: Callable[[Path, Mapping[str, str] | None], Runtime] = load,
    ) -> None:
        self._path = path
        self._digest = digest
        self._apply = apply
        self._refuse = refuse
        self._same = same
        self._environ = environ
        self._load = load
        self._wanted = asyncio.Event()

    def request(self) -> None:
        """Ask for a reload; several requests at once give one."""
        self._wanted.set()

    async def run(self) -> None:
        """Watch and reload until cancelled. SIGHUP is taken over meanwhile, in a loop that can handle signals."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        with suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(signal.SIGHUP, self.request)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(stop))
                try:
                    await self._serve()
                finally:
                    stop.set()  # the watching thread ends by this, not by a cancellation
        finally:
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGHUP)

    async def _serve(self) -> None:
        await asyncio.sleep(0)  # the watch begins; it does not see what changed since the file was read
        await self._reload(same=lambda: None)
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._settled()
            await self._reload()

    async def _reload(self, same: Callable[[], None] | None = None) -> None:
        try:
            runtime = await asyncio.to_thread(self._load, self._path, self._environ)
        except ConfigError as error:
            self._refuse(error)
        except Exception as error:  # a fault in loading must not end a gateway that works
            problem = Problem(str(self._path), None, "", f"cannot be loaded: {type(error).__name__}")
            self._refuse(ConfigError([problem]))
        else:
            self._take(runtime, same or self._same)

    def _take(self, runtime: Runtime, same: Callable[[], None]) -> None:
        if runtime.digest == self._digest:
            same()
        else:
            self._digest = runtime.digest
            self._apply(runtime)

    async def _watch(self, stop: asyncio.Event) -> None:
        """Watch the folders, not the file: editors replace it, and a mounted ConfigMap switches a link above it."""
        folders = {self._path.absolute().parent, self._path.resolve().parent}
        changes = awatch(*folders, watch_filter=concerns(self._path), stop_event=stop, recursive=False, step=20)
        try:
            async for _ in changes:
                self.request()
        except OSError as error:
            text = f"changes of the file are not seen ({error.strerror or error}); SIGHUP still reloads"
            self._refuse(ConfigError([Problem(str(self._path), None, "", text)]))

    async def _settled(self) -> None:
        """Wait until the file stands still: a half-written one may be valid and yet not what is meant."""
        before: Stamp = (0, 0, 0)
        for _ in range(SETTLE_ROUNDS):
            stamp = _stamp(self._path)
            if stamp is not None and stamp == before:
                return
            before = stamp
            await asyncio.sleep(SETTLE_SECONDS)


class Reloads:
    """What became of the reloads of one process."""

    def __init__(self, count: Callable[[str], None] = lambda result: None) -> None:
        """`count` is told each result: `ok`, `same` or `refused`."""
        self.request: Callable[[], None] = lambda: None
        """Asks for one; set by whoever runs the Reloader."""
        self.loaded_at = time.time()
        """When the configuration in force was read, in seconds since 1970."""
        self.refused: str | None = None
        """Why the file as it is now is not in force."""
        self._count = count
        self._waiting: list[asyncio.Future[tuple[str, str]]] = []

    def ended(self, result: str, problems: str = "") -> None:
        """One is over."""
        self._count(result)
        self.refused = problems if result == "refused" else None
        if result == "ok":
            self.loaded_at = time.time()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result((result, problems))

    async def ask(self, seconds: float = ASK_SECONDS) -> tuple[str, str]:
        """Have the file read again; the result and the problems. Raises TimeoutError."""
        future: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.request()
        async with asyncio.timeout(seconds):
            return await future


def concerns(path: Path) -> Callable[[Change, str], bool]:
    """Whether a change in the folder can be one of the configuration: a database may well live there too."""
    names = {path.name, path.resolve().name, ".env", "..data"}
    return lambda _, changed: Path(changed).name in names


def _stamp(path: Path) -> Stamp:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
