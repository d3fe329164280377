"""One engine as a child process: its log as lines, its end, and no way for it to stay behind (keeper.py)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping

from serving.engine import keeper
from serving.engine.command import Command, hide

LINE_BYTES = 16 * 1024
"""A longer line is cut."""
TAIL_LINES = 2000
"""Kept to find out why an engine ended; a traceback of vLLM is about 200 lines, its usage text 300."""


class Process:
    """A running engine."""

    def __init__(self, child: asyncio.subprocess.Process, command: Command, on_line: Callable[[str], None]) -> None:
        self._child = child
        self._secrets = command.secrets
        self._on_line = on_line
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        """The last lines of the log, without secrets."""

    @classmethod
    async def start(
        cls, command: Command, environ: Mapping[str, str], on_line: Callable[[str], None], grace: float
    ) -> Process:
        """Start `command` in `environ` and its own variables; while `run` is awaited, `on_line` gets each line.

        `grace` is how many seconds it has between SIGTERM and SIGKILL when it is stopped, or when this process is gone.
        """
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", keeper.__file__, str(grace), *command.argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=command.cwd,
            env={**environ, **command.env},
            start_new_session=True,
        )
        return cls(child, command, on_line)

    async def run(self) -> int:
        """Pass the log on until the engine has ended; its exit code, 128 + n for signal n."""
        assert self._child.stdout is not None
        async for line in lines(self._child.stdout):
            text = hide(line, self._secrets)
            self.tail.append(text)
            self._on_line(text)
        return await self._child.wait()

    def kill(self) -> None:
        """End it now, whatever it does: it is frozen."""
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.write(b"k")

    def stop(self) -> None:
        """Ask it to end; `run` returns when it has, at the latest after the grace time."""
        assert self._child.stdin is not None
        self._child.stdin.close()


async def lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """The text lines of a byte stream; a carriage return ends one too, as in progress bars. Empty ones are left out."""
    rest = b""
    while chunk := await stream.read(LINE_BYTES):
        *whole, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        if len(rest) > LINE_BYTES:
            whole, rest = [*whole, rest], b""
        for line in filter(bytes.strip, whole):
            yield _text(line)
    if rest.strip():
        yield _text(rest)


def _text(line: bytes) -> str:
    return line[:LINE_BYTES].decode(errors="replace").rstrip()
