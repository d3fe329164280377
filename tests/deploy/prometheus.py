"""A real Prometheus (Debian's package) on a free port, with a configuration of the test's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from tests.fakes import Cut, fetch

START_SECONDS = 60


class Prometheus:
    """`config`: prometheus.yml as a mapping."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._folder = Path(tempfile.mkdtemp(prefix="prometheus-"))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]

    async def __aenter__(self) -> Self:
        program = shutil.which("prometheus")
        assert program is not None, "install the package prometheus"
        file = self._folder / "prometheus.yml"
        file.write_text(json.dumps(self._config))  # JSON is YAML
        listen, kept = f"--web.listen-address=127.0.0.1:{self.port}", f"--storage.tsdb.path={self._folder / 'data'}"
        with (self._folder / "log").open("wb") as log:
            command = [program, f"--config.file={file}", kept, listen]
            self._process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await self._ready():  # noqa: ASYNC110 - a process has no event
                    await asyncio.sleep(0.1)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def ask(self, path: str) -> Any:
        """`data` of an answer of /api/v1/..., which must be a success."""
        answer = await fetch(f"http://127.0.0.1:{self.port}", f"/api/v1/{path}")
        assert answer.status == 200, (path, answer.body)
        return answer.json()["data"]

    async def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """(labels, value) of each sample that an expression yields now. AssertionError if it is not accepted."""
        result = (await self.ask(f"query?query={quote(expr, safe='')}"))["result"]
        return [(row["metric"], float(row["value"][1])) for row in result]

    async def until(self, expr: str, value: float) -> None:
        """Wait until an expression yields one sample of that value."""
        seen: list[float] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                while (seen := [found for _, found in await self.query(expr)]) != [value]:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        assert seen == [value], (expr, seen, value)

    async def _ready(self) -> bool:
        if self._process.returncode is not None:
            raise RuntimeError((self._folder / "log").read_text())
        with contextlib.suppress(OSError, Cut):
            return (await fetch(f"http://127.0.0.1:{self.port}", "/-/ready")).status == 200
        return False
