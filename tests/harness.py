"""The gateway under test, over real sockets: as a process of its own, or inside the test's event loop.

    async with LocalGateway(config_for(upstream)) as gw:      # milliseconds: for nearly every test
        answer = await gw.chat("hello")
    async with Gateway(config_for(upstream)) as gw:           # `turnout serve`: signals, memory, logs, exit code
        ...

Both leave with an assertion that the gateway ended well: no task, traceback or process is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import uvicorn
from prometheus_client.parser import text_string_to_metric_families

import gateway
from gateway.app import create
from gateway.config import load
from gateway.edge.server import WebServer, settings
from gateway.telemetry.logs import Writer, logger
from tests.fakes import Client, Cut, Response, Upstream, connect, fetch
from tests.fakes.client import AnyHeaders

Config = str | Mapping[str, Any]

START_LIMIT = 30.0
"""Seconds until a process must answer; generous, since it only ends tests that have failed."""
STOP_LIMIT = 30.0
TROUBLE = ("Traceback (most recent call last)", "Task was destroyed but it is pending", "was never retrieved")
"""What the gateway's output must never hold."""


def config_for(*upstreams: Upstream, **sections: Any) -> dict[str, Any]:
    """A small configuration: models `m0`, `m1`, ... one per upstream; route `auto` begins with `m0`, then the others.

    `sections` are merged in by key, e.g. `gateway={"timeouts": {"idle": 1}}`; anything but a mapping replaces.
    """
    names = [f"m{number}" for number in range(len(upstreams))]
    base = {
        "version": 1,
        "upstreams": {f"u{n}": {"base_url": up.url, "api_key": f"sk-upstream-{n}"} for n, up in enumerate(upstreams)},
        "models": {name: {"upstream": f"u{n}", "model": "fake"} for n, name in enumerate(names)},
        "routes": {"auto": {"default": names[0], "fallback": names[1:]}},
    }
    return merged(base, sections)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`: mappings are merged key by key, everything else is replaced."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


@dataclass(frozen=True, slots=True)
class Samples:
    """What /metrics said."""

    rows: tuple[tuple[str, Mapping[str, str], float], ...]
    """(sample name, labels, value)."""

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples of that exact name (`..._total`, `..._count`) that have these labels; 0 if none."""
        wanted = labels.items()
        return sum(value for sample, has, value in self.rows if sample == name and wanted <= has.items())


class Served:
    """What both kinds of gateway offer to a test."""

    def __init__(self, config: Config, env: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="turnout-test-"))
        self.file = self.folder / "routing.yaml"
        self.env = dict(env or {})
        """All variables that the configuration may name; nothing of the test's own environment."""
        self.port = 0
        self.write_config(config)

    @property
    def url(self) -> str:
        """Scheme, host and port; an SDK's base URL is this and `/v1`."""
        return f"http://127.0.0.1:{self.port}"

    def write_config(self, config: Config) -> None:
        """Write (or replace, in one step) the configuration file: text as it is, a mapping as JSON, which is YAML."""
        text = config if isinstance(config, str) else json.dumps(config, indent=1, ensure_ascii=False)
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.file)

    def remove_folder(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, *, receive_buffer: int | None = None) -> AbstractAsyncContextManager[Client]:
        """A raw connection to the gateway."""
        return connect(self.url, receive_buffer=receive_buffer)

    async def fetch(
        self, target: str, body: Any = None, *, method: str | None = None, headers: AnyHeaders = ()
    ) -> Response:
        """One request on a connection of its own, answer read. GET without a body, POST with one."""
        return await fetch(self.url, target, body, method=method, headers=headers)

    async def chat(
        self, text: str = "hello", *, model: str = "auto", headers: AnyHeaders = (), **fields: Any
    ) -> Response:
        """A chat call of one user message; other keywords become fields of the body."""
        body = {"model": model, "messages": [{"role": "user", "content": text}]} | fields
        return await self.fetch("/v1/chat/completions", body, headers=headers)

    async def metrics(self, headers: AnyHeaders = ()) -> Samples:
        """What /metrics says now."""
        answer = await self.fetch("/metrics", headers=headers)
        assert answer.status == 200, answer
        families = text_string_to_metric_families(answer.body.decode())
        return Samples(tuple((s.name, s.labels, s.value) for family in families for s in family.samples))

    @property
    def output(self) -> str:
        """All that the gateway has logged or printed so far; still there after its end."""
        raise NotImplementedError

    def log(self, **fields: Any) -> list[dict[str, Any]]:
        """The log lines so far (JSON, one object a line) that have these fields with these values."""
        whole = self.output.rpartition("\n")[0]  # the last line may still be on its way
        entries = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [entry for entry in entries if fields.items() <= entry.items()]

    async def logged(self, **fields: Any) -> dict[str, Any]:
        """The first log line with these fields, as soon as it is written."""
        async with asyncio.timeout(STOP_LIMIT):
            while not (found := self.log(**fields)):  # noqa: ASYNC110 - a file has no event to wait for
                await asyncio.sleep(0.01)
        return found[0]

    def calls(self) -> list[dict[str, Any]]:
        """The log lines of finished calls, in order."""
        return self.log(event="call")


class _Lines:
    """Where a local gateway logs to: a list instead of a stream."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def msg(self, line: str) -> None:
        self.lines.append(line)

    debug = info = warning = error = critical = msg


class LocalGateway(Served):
    """The gateway in the test's own event loop, behind uvicorn on a port of its own.

    `options` go to `gateway.app.create`. `app` is the application.
    """

    def __init__(self, config: Config, env: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(config, env)
        self._options = options
        self._log = _Lines()

    @property
    def output(self) -> str:
        return "".join(f"{line}\n" for line in self._log.lines)

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            self.remove_folder()
            raise
        return self

    async def _start(self) -> None:
        self._tasks = asyncio.all_tasks()
        self.app = create(load(self.file, self.env), logger(cast(Writer, self._log), as_text=False), **self._options)
        config = settings(self.app, self.app.inference)
        config.load()
        self._server = WebServer(config)
        self._server.lifespan = config.lifespan_class(config)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self._socket.getsockname()[1]
        # What Server.serve does, without its main loop, whose only effect here would be to end 0.1 s later.
        try:
            await self._server.startup(sockets=[self._socket])
        except SystemExit:
            self._socket.close()
            raise RuntimeError(f"the gateway does not start:\n{self.output}") from None
        await self._server.on_tick(0)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._shut_down(force=error is not None)
        finally:
            self.remove_folder()
        if error:
            error.add_note(f"The gateway's log:\n{self.output[-4000:]}")
            return
        left = [task for task in asyncio.all_tasks() - self._tasks if _is_gateways(task)]
        assert not left, f"the gateway left tasks behind: {left}"
        assert not _trouble(self.output), self.output[-4000:]

    async def _shut_down(self, *, force: bool) -> None:
        """What Server.shutdown does, without its fixed 0.1 s of sleep. Calls that still run have STOP_LIMIT to end."""
        state = self._server.server_state
        for server in self._server.servers:
            server.close()
        self._socket.close()
        for connection in list(state.connections):
            connection.transport.abort() if force else connection.shutdown()
        for task in state.tasks if force else ():
            task.cancel()
        try:
            async with asyncio.timeout(STOP_LIMIT):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn offers no event
                    await asyncio.sleep(0.001)
        finally:
            await self._server.lifespan.shutdown()


class Gateway(Served):
    """`turnout serve` as a process of its own. `pid` and what hangs on it are valid inside the context only."""

    def __init__(
        self, config: Config, env: Mapping[str, str] | None = None, *, arguments: tuple[str, ...] = ()
    ) -> None:
        super().__init__(config, env)
        self._arguments = arguments
        self._out = self.folder / "stdout"
        self._err = self.folder / "stderr"
        self._kept: str | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        if self._kept is not None:
            return self._kept
        return self._out.read_text(errors="replace") + self._err.read_text(errors="replace")

    def rss(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def descriptors(self) -> int:
        """Open file descriptors."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    async def descriptors_at_rest(self) -> int:
        """Their number once it has stood still: connections that were closed by their other end end a little later."""
        count = -1
        while count != (count := self.descriptors()):  # noqa: ASYNC110 - /proc has no event to wait for
            await asyncio.sleep(0.2)
        return count

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        """Wait for the process to end by itself; its exit code (negative: the signal that ended it)."""
        async with asyncio.timeout(STOP_LIMIT):
            return await self._process.wait()

    async def __aenter__(self) -> Self:
        self.port = self.port or _free_port()
        serve = ["serve", "--config", str(self.file), "--host", "127.0.0.1", "--port", str(self.port)]
        command = [sys.executable, "-m", "gateway.cli", *serve, *self._arguments]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "PYTHONUNBUFFERED": "1"} | self.env
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = await asyncio.create_subprocess_exec(
                *command, cwd=self.folder, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err
            )
        try:
            await self._until_live()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._process.returncode is None:
                self.signal(signal.SIGTERM)
            code = await self.wait()
        except TimeoutError:
            code = None
        finally:
            await self._end()
        if error:
            error.add_note(f"The gateway's output:\n{self.output[-4000:]}")
            return
        assert code == 0, f"turnout serve ended with {code}:\n{self.output[-4000:]}"
        assert not _trouble(self.output), self.output[-4000:]

    async def _until_live(self) -> None:
        async with asyncio.timeout(START_LIMIT):
            while True:
                if self._process.returncode is not None:
                    raise RuntimeError(f"turnout serve ended with {self._process.returncode}:\n{self.output}")
                with contextlib.suppress(OSError, Cut):
                    if (await self.fetch("/health/live")).status == 200:
                        return
                await asyncio.sleep(0.02)

    async def _end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._kept = self.output
        self.remove_folder()


def _is_gateways(task: asyncio.Task[Any]) -> bool:
    """The task runs code of the gateway or of its web server (and not the test's own, or a fake's)."""
    code = getattr(task.get_coro(), "cr_code", None)
    folders = (Path(gateway.__file__).parent, Path(uvicorn.__file__).parent)
    return code is not None and not task.done() and any(f in Path(code.co_filename).parents for f in folders)


def _trouble(output: str) -> list[str]:
    return [sign for sign in TROUBLE if sign in output]


def _free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
