"""Starting the fake engine, and seeing that a process is really gone."""

from __future__ import annotations

import json
import select
import socket
import sys
from collections.abc import Callable
from os import close, pidfd_open
from pathlib import Path
from typing import Any

from serving.engine.command import Command, Launch

PROGRAM = Path(__file__).with_name("fake_engine.py")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port


def fake_command(**script: Any) -> Command:
    """The command that starts the fake engine with this script."""
    port = script.pop("port", None)
    where = [] if port is None else ["--port", str(port)]
    return Command((sys.executable, "-I", "-S", str(PROGRAM), json.dumps(script), *where))


def fake_launch(name: str = "local", api_key: str | None = None, restarts: int = 0, **script: Any) -> Launch:
    """A launch of the fake engine on a port of its own."""
    port = free_port()
    upstream, _, replica = name.rstrip("]").partition("[")
    place = int(replica or 0)
    return Launch(name, fake_command(port=port, **script), port, "demo-ft", api_key, upstream, place, restarts=restarts)


def number_after(word: str, lines: list[str]) -> int:
    """The number in the line `... word N`."""
    return int(next(line.rpartition(" ")[2] for line in lines if f"{word} " in line))


def ends(pid: int, within: float = 10.0) -> bool:
    """Whether the process is gone, or goes within so many seconds."""
    try:
        process = pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], within)[0])
    finally:
        close(process)


class Log:
    """Collects lines; `seen` tells a test about one as it comes."""

    def __init__(self, on_line: Callable[[str], None] = lambda _: None) -> None:
        self.lines: list[str] = []
        self._on_line = on_line

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._on_line(line)
