"""One worker of several: tests/unit/cli/test_workers.py starts real ones; here what it refuses."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gateway.cli.worker import main


def test_a_wrong_configuration_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "routing.yaml"
    file.write_text("version: 2")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert main(str(file), "127.0.0.1", str(os.dup(listener.fileno())), "0", str(tmp_path), "1") == 2
    assert "version" in capsys.readouterr().err
