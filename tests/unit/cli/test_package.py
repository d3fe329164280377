"""The `turnout` command: its options, and the exit codes that programs rely on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway import __version__
from gateway.cli import app

GOOD = """
version: 1
upstreams: {up: {base_url: "https://upstream.test", api_key: sk-up}}
models: {fast: {upstream: up, model: fake}}
routes: {auto: {default: fast}}
"""


def turnout(*arguments: str) -> tuple[int, str]:
    """Exit code, and all that was printed."""
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "routing.yaml"
    path.write_text(GOOD)
    return str(path)


def test_version() -> None:
    assert turnout("--version") == (0, f"turnout {__version__}\n")


@pytest.mark.seconds
def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "gateway.cli", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"turnout {__version__}\n", "")


def test_help_names_every_command() -> None:
    code, text = turnout("--help")
    assert code == 0
    for command in ("init", "up", "serve", "engine", "check"):
        assert f"\n  {command} " in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("serve", "--nonsense"),
        ("serve", "--port", "70000"),
        ("serve", "--port", "-1"),
        ("serve", "--port", "http"),
        ("up", "--port", "70000"),
        ("engine",),
        (),
    ],
)
def test_wrong_use_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    assert turnout(*arguments)[0] == 2


def test_check(file: str) -> None:
    code, text = turnout("check", "--config", file)
    assert code == 0
    assert "fast" in text


@pytest.mark.parametrize("command", ["check", "serve", "up"])
def test_a_bad_configuration_is_exit_code_2(file: str, command: str) -> None:
    Path(file).write_text(GOOD + "rutes: {}\n")
    code, text = turnout(command, "--config", file)
    assert code == 2
    assert "routing.yaml:6" in text
    assert "routes" in text
    Path(file).unlink()
    assert turnout(command, "--config", file)[0] == 2


def test_a_command_imports_only_what_it_needs() -> None:
    """So that `turnout --version` answers at once."""
    program = (
        "import sys\nfrom gateway.cli import app\n"
        "print([m for m in ('uvicorn', 'fastapi', 'httpx2', 'gateway.wiring') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
