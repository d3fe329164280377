"""Who is measured: how each server is started, and where its version comes from."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
TURNOUT = HERE.parent / ".venv" / "bin" / "turnout"
KEY = "sk-bench-on-loopback-only"
DIRECT, REFERENCE, SUBJECT, TARGET_PEER = "direct", "nginx", "turnout", "vllm-router"


@dataclass(frozen=True, slots=True)
class Server:
    """A command line; `{port}`, `{mock}` (the mock's port), `{spare}` (a free port) and `{work}` are filled in."""

    name: str
    argv: tuple[str, ...]
    version_argv: tuple[str, ...] = ()
    template: Path | None = None
    """A configuration file with the same placeholders; lands in `{work}` under its own name."""
    ready_seconds: float = 30.0

    def prepare(self, values: Mapping[str, str]) -> list[str]:
        """Writes the configuration and returns the command line for one start."""
        if self.template:
            target = Path(values["work"]) / self.template.name
            target.write_text(_fill(self.template.read_text(), values))
        return [_fill(part, values) for part in self.argv]

    def version(self) -> str:
        """The first version number that the server's own tool prints."""
        if not self.version_argv:
            return ""
        result = subprocess.run(self.version_argv, capture_output=True, text=True, timeout=60, check=False)
        found = re.search(r"\d+(\.\d+)+[\w.+-]*", result.stdout + result.stderr)
        return found[0] if found else "unknown"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another gateway, installed from PyPI into an environment of its own when it is asked for."""

    requirement: str
    argv: tuple[str, ...]
    ready_seconds: float = 30.0


_ROUTER = ("--host=127.0.0.1", "--port={port}", "--worker-urls=http://127.0.0.1:{mock}", "--policy=round_robin")
_ROUTER_METRICS = ("--prometheus-host=127.0.0.1", "--prometheus-port={spare}")
_LITELLM_SETTINGS = (
    "LITELLM_MODE=PRODUCTION",
    "LITELLM_LOG=ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP=True",
    "BENCH_MOCK_URL=http://127.0.0.1:{mock}/v1",
)

PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        TARGET_PEER: Peer("vllm-router", ("{bin}/vllm-router", *_ROUTER, *_ROUTER_METRICS, "--log-level=warning")),
        "sglang-router": Peer(
            "sglang-router",
            ("{bin}/python", "-m", "sglang_router.launch_router", *_ROUTER, *_ROUTER_METRICS, "--log-level=warn"),
        ),
        "litellm": Peer(
            "litellm[proxy]",
            (
                "env",
                *_LITELLM_SETTINGS,
                "{bin}/litellm",
                f"--config={HERE}/rig/litellm.yaml",
                "--host=127.0.0.1",
                "--port={port}",
                "--num_workers=1",
                "--telemetry=False",
            ),
            ready_seconds=120.0,
        ),
    }
)


def subject() -> Server:
    """Turnout, everything on."""
    settings = ("BENCH_MOCK_PORT={mock}", "BENCH_WORK_DIR={work}", f"BENCH_KEY={KEY}")
    serve = (str(TURNOUT), "serve", f"--config={HERE}/turnout.yaml", "--host=127.0.0.1", "--port={port}")
    return Server(SUBJECT, ("env", *settings, *serve), (str(TURNOUT), "--version"))


def reference() -> Server:
    """nginx as a plain reverse proxy: it does no work on the content, which makes it the practical limit."""
    command = ("nginx", "-p", "{work}", "-c", "{work}/nginx.conf")
    return Server(REFERENCE, command, ("nginx", "-v"), HERE / "rig" / "nginx.conf")


def custom(setting: str) -> Server:
    """`NAME=COMMAND`, e.g. another checkout of Turnout. Raises ValueError for other forms and taken names."""
    found = re.fullmatch(r"([\w.-]+)=(.*\{port\}.*)", setting)
    if not found:
        raise ValueError(f"expected NAME=COMMAND with {{port}} in the command, got {setting!r}")
    name, command = found.groups()
    if name in (DIRECT, REFERENCE, SUBJECT, *PEERS):
        raise ValueError(f"{name} is the name of another server of this benchmark")
    return Server(name, tuple(shlex.split(command)))


def peer(name: str) -> Server:
    """A peer from the table; installs it first where its environment is missing."""
    row = PEERS[name]
    environment = BUILD / "peers" / name
    if not (environment / "installed").exists():
        _install(row.requirement, environment)
    binaries = str(environment / "bin")
    package = row.requirement.partition("[")[0]
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    argv = tuple(part.replace("{bin}", binaries) for part in row.argv)
    return Server(name, argv, (f"{binaries}/python", "-c", ask), ready_seconds=row.ready_seconds)


def _install(requirement: str, environment: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    subprocess.run([str(environment / "bin" / "pip"), "install", "--quiet", requirement], check=True)
    (environment / "installed").touch()


def _fill(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text
