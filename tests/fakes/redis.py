"""A real redis-server of one's own, which can be stopped, frozen and restarted empty.

with RedisServer() as server:
    ...                       # server.url, server.unix_url
    server.freeze()           # accepts connections and never answers
    server.thaw()
    server.restart()          # comes back empty, at the same address
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import hiredis

from tests.fakes.freeze import freeze

_NOTHING = object()
_HIGHEST = 55_535
"""A cluster's nodes talk to each other 10,000 ports higher."""


class RedisServer:
    """The server; `options` as on its command line: `RedisServer("--requirepass", "secret")`."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._folder = Path(tempfile.mkdtemp(prefix="redis-"))
        self.port = _free_port()
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket_path(self) -> Path:
        return self._folder / "redis.sock"

    @property
    def unix_url(self) -> str:
        return f"unix://{self.socket_path}"

    def start(self) -> None:
        """Returns once it takes connections."""
        program = shutil.which("redis-server")
        assert program is not None, "install the package redis-server"
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket_path)]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self._folder), *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if "The server is now ready to accept connections at" in line:
                return
        raise RuntimeError(f"redis-server did not start: {''.join(said)}")

    def stop(self) -> None:
        """At once, as a crash would: connections are reset, nothing is kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def restart(self) -> None:
        """Stop it and come back, empty."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """From now on it accepts connections and never answers."""
        assert self._process is not None
        freeze(self._process.pid)

    def thaw(self) -> None:
        """Go on where it was frozen."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ask(self, *command: str | int | bytes, user: tuple[str, str] | None = None) -> Any:
        """Send one command and return its answer; an error of Redis is raised."""
        reader = hiredis.Reader(encoding="utf-8", errors="replace", notEnoughData=_NOTHING)
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.port), timeout=10)) as connection:
            for packed in ([("AUTH", *user)] if user else []) + [command]:
                connection.sendall(hiredis.pack_command(packed))  # type: ignore[arg-type]
                while (answer := reader.gets()) is _NOTHING:
                    data = connection.recv(65536)
                    if not data:
                        raise ConnectionError("closed by redis-server")
                    reader.feed(data)
                if isinstance(answer, Exception):
                    raise answer
        return answer

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_port() -> int:
    with contextlib.ExitStack() as held:
        while True:
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            if port <= _HIGHEST:
                return port
