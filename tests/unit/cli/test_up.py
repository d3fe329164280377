"""`turnout up`, with a fake engine: engines first, then the gateway, and nothing is left when it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.cli.up import _welcome, up
from gateway.config.runtime import GatewaySettings
from tests.unit.building import a_runtime
from tests.unit.cli.test_engine import ROOT, config, install_fake_vllm
from tests.unit.cli.test_package import GOOD
from tests.unit.serving.engine.fakes import ends, free_port, number_after

pytestmark = pytest.mark.slow


@contextmanager
def turnout_up(file: Path, site: Path) -> Iterator[subprocess.Popen[str]]:
    """`turnout up` as a program of its own, on a port of its own."""
    path = os.pathsep.join([str(site), str(ROOT)])
    argv = [sys.executable, "-m", "gateway.cli", "up", "--config", str(file), "--port", str(free_port())]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    out = err = subprocess.PIPE
    with subprocess.Popen(argv, env=environment, text=True, stdout=out, stderr=err) as process:
        try:
            yield process
        finally:
            process.kill()


def welcome(process: subprocess.Popen[str]) -> str:
    """All that is printed for people, to its last line."""
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("Stop with"):
            break
    return "".join(lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_engines_then_the_gateway_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    file = config(tmp_path)
    with turnout_up(file, install_fake_vllm(tmp_path, {})) as process:
        text = welcome(process)
        address = text.partition("ready at http://")[2].partition("/v1")[0]
        with urllib.request.urlopen(f"http://{address}/health/ready", timeout=30) as answer:
            ready = answer.read()
        process.send_signal(number)
        assert process.stderr
        log = process.stderr.read().splitlines()
        assert process.wait(30) == 0
    assert b'"status":"ready"' in ready
    assert ends(number_after("pid", log))


def test_an_upstream_of_somebody_elses_needs_no_engine(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    file.write_text(GOOD + "keys: [{name: me, key: sk-turnout-mine-1234567890}]\n")
    with turnout_up(file, tmp_path) as process:
        text = welcome(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "model names: auto, fast" in text
    assert "-H 'authorization: Bearer YOUR_KEY'" in text
    assert "sk-turnout" not in text


def test_an_engine_that_does_not_come_up_is_exit_code_1(tmp_path: Path) -> None:
    site = install_fake_vllm(tmp_path, {"log": ["OSError: [Errno 98] Address already in use"], "exit": 1})
    with turnout_up(config(tmp_path), site) as process:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 1
    assert out == ""
    assert err.splitlines()[-1].startswith("turnout: engine local: its port is taken by another program")
    assert "Traceback" not in err


def test_a_signal_while_engines_start_ends_them(tmp_path: Path) -> None:
    site = install_fake_vllm(tmp_path, {"generates": "never"})
    with turnout_up(config(tmp_path), site) as process:
        assert process.stderr
        lines: list[str] = []
        while not any("pid " in line for line in lines):
            lines.append(process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    assert out == ""
    assert ends(number_after("pid", lines))


def test_a_taken_port_is_said_before_any_engine_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert up(config(tmp_path), None, taken.getsockname()[1]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("turnout: cannot listen on 127.0.0.1:")
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_a_bad_configuration_and_an_open_address_are_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert up(tmp_path / "gone.yaml", None, None) == 2
    assert up(config(tmp_path), "0.0.0.0", None) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1:8080"), ("0.0.0.0", "127.0.0.1:8080"), ("::1", "[::1]:8080")],
)
def test_the_address_for_people(host: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    _welcome(a_runtime(gateway=GatewaySettings(host=host)))
    assert capsys.readouterr().out.count(f"http://{shown}/v1") == 4
