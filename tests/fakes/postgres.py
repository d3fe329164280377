"""A real PostgreSQL server on a free port, in a folder of its own: started, frozen, killed and started anew."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fakes.freeze import freeze

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
"""Where Debian keeps what is not on the PATH."""
WAIT = 60
PASSWORD = "pg-secret-word"


class Postgres:
    """`url` names an empty database `turnout`; `new_database()` makes further ones."""

    def __init__(self) -> None:
        programs = PROGRAMS[0] if PROGRAMS else Path(shutil.which("initdb") or "/missing/initdb").parent
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="turnout-postgres-"))
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]

    @property
    def url(self) -> str:
        """With user and password."""
        return self.url_of("turnout")

    def url_of(self, database: str) -> str:
        """With user and password."""
        return f"postgresql://turnout:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> Self:
        try:
            secret = self._folder / "password"
            secret.write_text(PASSWORD)
            if os.getuid() == 0:  # the server refuses to run as root
                shutil.chown(self._folder, "postgres")
                shutil.chown(secret, "postgres")
            options = ["-U", "turnout", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync", "-E", "UTF8"]
            self._run("initdb", "-D", str(self._data), "--locale=C", *options)
            self.start()
            self._sql("postgres", "CREATE DATABASE turnout")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thaw()
        if self._process is not None:
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Run the server until it answers."""
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("postgres", "-D", str(self._data), *options), stdout=log, stderr=log, env=self._env()
            )
        while self._process.poll() is None:
            ready = self._run("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1", check=False)
            if ready == 0:
                return
        raise RuntimeError((self._folder / "log").read_text())

    def stop(self) -> None:
        """End the server at once, connections with it (immediate mode: as a crash would)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(WAIT)
        self._process = None

    def freeze(self) -> None:
        """Server and connections take bytes and answer nothing."""
        assert self._process is not None
        freeze(self._process.pid)  # first: it would go on making children
        self._tell_children(freeze)

    def thaw(self) -> None:
        """Go on; harmless where nothing is frozen."""
        if self._process is not None:
            self._tell_children(_thaw)
            _thaw(self._process.pid)

    def new_database(self) -> str:
        """The URL of a new, empty database; also after a test that failed and left the server frozen or dead."""
        self.thaw()
        if self._process is None:
            self.start()
        self._databases += 1
        name = f"test_{self._databases}"
        self._sql("postgres", f"CREATE DATABASE {name}")
        return self.url_of(name)

    def _tell_children(self, tell: Callable[[int], None]) -> None:
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in map(int, children):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # a connection that has just ended
                tell(pid)

    def _sql(self, database: str, statement: str) -> None:
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "turnout", "-d", database]
        self._run("psql", "-q", *where, "-c", statement)

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        command = self._command(program, *arguments)
        done = subprocess.run(command, capture_output=True, env=self._env(), timeout=WAIT, cwd=self._folder)
        if check and done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode()}")
        return done.returncode

    def _command(self, program: str, *arguments: str) -> list[str]:
        """As user postgres, without a process between: signals reach the server itself."""
        own = [str(self._programs / program), *arguments]
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *own] if os.getuid() == 0 else own

    def _env(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PGPASSWORD": PASSWORD, "HOME": str(self._folder)}


def _thaw(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)
