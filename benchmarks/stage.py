"""The set-up of one run: mock upstream, servers, and the measurement of one scenario against one of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bodies import chat_body
from benchmarks.process import Tree, free_port, spent_ns
from benchmarks.scenarios import Scenario
from benchmarks.servers import BUILD, DIRECT, KEY, Server

PATH = "/v1/chat/completions"
POLL_SECONDS = 0.002
SETTLE_SECONDS = 0.5
LOAD_SLACK_SECONDS = 60.0

Sample = dict[str, Any]
"""The load client's report, with `cpu_us` (per request or chunk), `cpu_share` (of one core) and `per_second` added."""


class BenchError(Exception):
    """The run cannot go on: a server does not start or answers wrongly."""


@dataclass(frozen=True, slots=True)
class Started:
    """A server that answers. `tree` is None for the direct path, which has no server of its own."""

    name: str
    port: int
    tree: Tree | None = None
    first_answer_ms: float = 0.0
    idle_memory_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a run takes place: a scratch folder, the cores, and the mock's port."""

    work: Path
    server_core: int
    rig_core: int
    mock_port: int

    @contextlib.contextmanager
    def running(self, server: Server) -> Iterator[Started]:
        """Starts a server, waits until it answers rightly, and stops it at the end. Raises BenchError."""
        work = self.work / server.name
        work.mkdir(exist_ok=True)
        port, log = free_port(), work / "output.log"
        values = {"port": port, "mock": self.mock_port, "spare": free_port(), "work": work}
        argv = server.prepare({name: str(value) for name, value in values.items()})
        begin = time.monotonic()
        tree = Tree(argv, core=self.server_core, directory=work, log=log)
        try:
            _await_answer(tree, port, begin + server.ready_seconds, server.name, log)
            first_answer_ms = (time.monotonic() - begin) * 1e3
            _check_stream(port, server.name)
            time.sleep(SETTLE_SECONDS)
            yield Started(server.name, port, tree, first_answer_ms, tree.memory_mb())
        finally:
            tree.stop()

    def direct(self) -> Started:
        """The client straight to the mock."""
        return Started(DIRECT, self.mock_port)

    def measure(self, scenario: Scenario, started: Started) -> Sample:
        """One run of the load client. CPU time covers the whole run and is divided by all work that was completed."""
        body = self.work / f"{scenario.name}.json"
        if not body.exists():
            body.write_bytes(scenario.body())
        before = started.tree.cpu_ns() if started.tree else {}
        begin = time.monotonic()
        report = self._load(scenario, started, body)
        wall_ns = (time.monotonic() - begin) * 1e9
        spent = spent_ns(before, started.tree.cpu_ns()) if started.tree else 0
        return report | _derived(scenario, report, spent, wall_ns)

    def _load(self, scenario: Scenario, started: Started, body: Path) -> Sample:
        command = [str(BUILD / "load"), f"--port={started.port}", f"--body={body}", f"--path={PATH}"]
        header = f"--header=Authorization: Bearer {KEY}"
        result = subprocess.run(
            ["taskset", "-c", str(self.rig_core), *command, header, *scenario.load_arguments()],
            capture_output=True,
            text=True,
            timeout=scenario.seconds + scenario.warmup + LOAD_SLACK_SECONDS,
            check=False,
        )
        if result.returncode:
            raise BenchError(f"{started.name}, {scenario.name}: the load client failed: {result.stderr.strip()}")
        report: Sample = json.loads(result.stdout)
        return report


@contextlib.contextmanager
def mock_upstream(core: int, work: Path) -> Iterator[int]:
    """Runs the mock and yields its port."""
    log = work / "mock.log"
    tree = Tree([str(BUILD / "mock")], core=core, directory=work, log=log)
    try:
        _wait(lambda: log.read_text().endswith("\n"), tree, time.monotonic() + 5, "the mock upstream", log)
        yield int(log.read_text())
    finally:
        tree.stop()


def _derived(scenario: Scenario, report: Sample, spent: int, wall_ns: float) -> Sample:
    total, measured = (
        (report["chunks_total"], report["chunks_measured"])
        if scenario.stream
        else (report["completed"], report["measured"])
    )
    return {
        "cpu_us": round(spent / 1e3 / total, 2) if spent and total else None,
        "cpu_share": round(spent / wall_ns, 3),
        "per_second": round(measured / report["seconds"], 1),
    }


def _await_answer(tree: Tree, port: int, deadline: float, name: str, log: Path) -> None:
    body = chat_body(1024, "MOCK:reply=1024;")

    def answered() -> bool:
        status, answer = _post(port, body)
        if status == 200 and b'"chat.completion"' not in answer:
            raise BenchError(f"{name} answers 200 with something else: {answer[:200]!r}")
        return status == 200

    _wait(answered, tree, deadline, name, log)


def _wait(ready: Callable[[], bool], tree: Tree, deadline: float, name: str, log: Path) -> None:
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ready():
                return
        if not tree.running() or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            reason = "did not answer in time" if tree.running() else "exited"
            raise BenchError(f"{name} {reason}; its last output:\n{tail}")
        time.sleep(POLL_SECONDS)


def _check_stream(port: int, name: str) -> None:
    status, answer = _post(port, chat_body(1024, "MOCK:chunks=5,interval_us=1000;", stream=True))
    if status != 200 or answer.count(b"@T") != 5 or not answer.endswith(b"data: [DONE]\n\n"):
        raise BenchError(f"{name} does not relay a stream: status {status}, {answer[:400]!r}")


def _post(port: int, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    with contextlib.closing(connection):
        connection.request("POST", PATH, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
