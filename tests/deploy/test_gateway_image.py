"""What building and starting the gateway's image would do, done as plain processes: its install steps in a folder of
their own, then its command and its health check, with a real Redis and a real PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.deploy.dockerfile import Instruction, environment, health_command, last, stages
from tests.deploy.expressions import ROOT
from tests.fakes import Cut, Upstream, fetch
from tests.fakes.postgres import Postgres
from tests.fakes.redis import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FILE = ROOT / "deploy" / "docker" / "gateway.Dockerfile"
ABSOLUTE = re.compile(r"(?<![\w./])/(?=(?:opt|src|etc|var/lib)\b)")
KEY, ADMIN = "the-first-key", "the-admin-key"


def usable_by_all(program: str) -> bool:
    """Whether any user could run it, with what it takes to make an environment."""
    wanted = "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"
    return os.access(program, os.X_OK) and subprocess.run([program, "-c", wanted], capture_output=True).returncode == 0


SYSTEM = "/usr/bin/python3"
DROPS = os.getuid() == 0 and usable_by_all(SYSTEM)
"""As in the image, the gateway is not root; that takes a root who can give it up, and a Python outside root's home."""


@dataclass
class Image:
    """A file system of its own, under a folder."""

    root: Path
    environment: dict[str, str]

    def at(self, text: str) -> str:
        """A text with the image's absolute paths."""
        return ABSOLUTE.sub(f"{self.root}/", text)

    def run(self, instruction: Instruction, folder: Path) -> None:
        """One RUN, in the folder of WORKDIR."""
        tools = self.root / "tools"
        done = subprocess.run(
            ["sh", "-ec", self.at(instruction.text)],
            cwd=folder,
            env={**os.environ, "PATH": f"{tools}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def copy(self, instruction: Instruction, folder: Path) -> None:
        """One COPY from the project."""
        *sources, target = instruction.words()
        into = folder / self.at(target)
        for source in map(ROOT.joinpath, sources):
            if source.is_dir():
                shutil.copytree(source, into, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, into)


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Built: the first stage step by step, of the last one what does not need to be root."""
    root = Path(tempfile.mkdtemp(prefix="turnout-image-"))
    root.chmod(0o755)
    try:
        build, final = stages(FILE)
        made = Image(root, environment(final))
        (root / "tools").mkdir()
        (root / "tools" / "python").symlink_to(SYSTEM if DROPS else sys.executable)
        folder = root
        for instruction in build[1:]:
            if instruction.name == "WORKDIR":
                folder = Path(made.at(instruction.text))
                folder.mkdir(parents=True)
            else:
                {"RUN": made.run, "COPY": made.copy}[instruction.name](instruction, folder)
        for instruction in final:
            if instruction.name == "COPY" and "--from" not in instruction.text:
                made.copy(instruction, root)
        state = root / "var/lib/turnout"
        state.mkdir(parents=True)
        if DROPS:
            os.chown(state, 10001, 10001)
        yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)


def started(image: Image, port: int, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """ENTRYPOINT and CMD with the image's environment, on a port of this machine alone."""
    final = stages(FILE)[-1]
    (entry,) = (i for i in final if i.name == "ENTRYPOINT")
    (command,) = (i for i in final if i.name == "CMD")
    program, *words = entry.listed() + command.listed()
    own = {name: image.at(value.replace("$PATH", "/usr/bin:/bin")) for name, value in image.environment.items()}
    dropped = ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups"] if DROPS else []
    with (image.root / "log").open("wb") as log:
        return subprocess.Popen(
            [
                *dropped,
                str(image.root / "opt/turnout/bin" / program),
                *words,
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ],
            cwd=image.at(last(final, "WORKDIR")),
            env=own | variables,
            stdout=log,
            stderr=log,
        )


def healthy(image: Image, port: int) -> bool:
    """HEALTHCHECK, with the port that the gateway has here."""
    program, *words = health_command(stages(FILE)[-1])
    command = [str(image.root / "opt/turnout/bin" / program), *(word.replace("8080", str(port)) for word in words)]
    return subprocess.run(command, env={}, capture_output=True, timeout=30).returncode == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def files(image: Image) -> dict[str, int]:
    """What the gateway may not write: everything but its state."""
    found = {path: path.lstat() for path in image.root.rglob("*")}
    kept = (image.root / "var", image.root / "log")
    return {str(p): s.st_mtime_ns for p, s in found.items() if not any(p.is_relative_to(k) for k in kept)}


def test_the_image_holds_the_gateway_and_no_tools(image: Image) -> None:
    programs = {path.name for path in (image.root / "opt/turnout/bin").iterdir()}
    assert "turnout" in programs
    assert {"pip", "pytest", "mypy"} & programs == set()
    listed = subprocess.run([image.root / "opt/turnout/bin/turnout", "--version"], capture_output=True, text=True)
    assert listed.stdout.startswith("turnout ")


async def test_it_starts_serves_reports_and_ends(image: Image, upstream: Upstream) -> None:
    before, port = files(image), free_port()
    with RedisServer("--requirepass", "word") as redis, Postgres() as postgres:
        variables = {
            "TURNOUT_KEY": KEY,
            "TURNOUT_ADMIN_KEY": ADMIN,
            "REDIS_URL": redis.url.replace("://", "://:word@"),
            "DATABASE_URL": postgres.url,
            "ENGINE_URL": upstream.url,
            "ENGINE_MODEL": "fake",
            "TURNOUT_WORKERS": "2",
        }
        assert not healthy(image, port)
        process = started(image, port, variables)
        try:
            await until_live(image, process, port)
            assert healthy(image, port)
            await used(f"http://127.0.0.1:{port}")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, grace_period()) == 0, (image.root / "log").read_text()
        finally:
            process.kill()
            process.wait()
    assert not healthy(image, port)
    assert files(image) == before


async def until_live(image: Image, process: subprocess.Popen[bytes], port: int) -> None:
    async with asyncio.timeout(60):
        while process.poll() is None:
            with suppress(OSError, Cut):
                if (await fetch(f"http://127.0.0.1:{port}", "/health/live")).status == 200:
                    return
            await asyncio.sleep(0.05)
    raise AssertionError((image.root / "log").read_text())


async def used(url: str) -> None:
    """A call with the key, and what is refused without one."""
    body = {"model": "quality", "messages": [{"role": "user", "content": "hello"}], "temperature": 1}
    answer = await fetch(url, "/v1/chat/completions", body, headers={"authorization": f"Bearer {KEY}"})
    assert answer.status == 200, answer.body
    assert answer.header("x-turnout-changed") == "temperature"
    assert (await fetch(url, "/v1/chat/completions", body)).status == 401
    assert (await fetch(url, "/metrics")).status == 401
    metrics = await fetch(url, "/metrics", headers={"authorization": f"Bearer {ADMIN}"})
    assert b'turnout_requests_total{model="quality"' in metrics.body
    assert b"\nturnout_limit_store_up 1.0\n" in metrics.body


def grace_period() -> int:
    """Seconds that docker-compose.yml gives the gateway to end."""
    text: str = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["gateway"]["stop_grace_period"]
    return int(text.removesuffix("s"))
