from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from serving.manifests import probe
from tests.unit.serving.engine.fakes import free_port

PROGRAM = Path(probe.__file__)


class Scripted:
    """An engine that answers each path with a fixed status, and keeps what it was asked."""

    def __init__(self, statuses: Mapping[str, int]) -> None:
        self._statuses = statuses
        self.heads: list[str] = []
        self.bodies: list[dict[str, object]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.lower().splitlines() if line.startswith("content-length")
        )
        self.heads.append(head)
        self.bodies.append(json.loads(await reader.readexactly(length)))
        status = self._statuses[head.split()[1]]
        if status:
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()


async def run(engine: Scripted, key: str = "") -> int:
    """The program's exit code, run as a pod runs it: alone, isolated, the key on standard input."""
    server = await asyncio.start_server(engine, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(PROGRAM), "127.0.0.1", str(port), "kimi-ft"), stdin=subprocess.PIPE
        )
        await asyncio.wait_for(process.communicate(key.encode()), 30)
    assert process.returncode is not None
    return process.returncode


@pytest.mark.parametrize(
    ("generates", "embeds", "code"),
    [(200, 0, 0), (404, 200, 0), (400, 200, 0), (503, 200, 1), (401, 200, 1), (404, 400, 1), (0, 200, 1)],
)
async def test_works_means_a_token_or_an_embedding(generates: int, embeds: int, code: int) -> None:
    engine = Scripted({"/v1/completions": generates, "/v1/embeddings": embeds})
    assert await run(engine) == code
    assert engine.bodies[0] == {"model": "kimi-ft", "prompt": "1", "max_tokens": 1}
    assert "authorization" not in engine.heads[0].lower()


async def test_the_key_comes_on_standard_input() -> None:
    engine = Scripted({"/v1/completions": 200})
    assert await run(engine, "sk-own\n") == 0
    assert "authorization: bearer sk-own\r\n" in engine.heads[0].lower()


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert probe.main(["127.0.0.1", str(free_port()), "kimi-ft"]) == 1


async def test_an_engine_that_is_silent_is_not_waited_for() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert not await asyncio.to_thread(probe.works, "127.0.0.1", port, "kimi-ft", "", 0.2)
