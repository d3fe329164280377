"""`turnout doctor`: a table for people, JSON for programs, an exit code for scripts."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from gateway.cli.doctor import doctor
from tests.fakes import refusing_port

CONFIG = """
version: 1
upstreams:
  gone: {{base_url: "http://127.0.0.1:{port}", api_key: k}}
  off: {{base_url: "http://127.0.0.1:9", api_key: "${{NOT_SET}}", optional: true}}
models: {{m: {{upstream: gone, model: x}}}}
"""


def run(file: Path, as_json: bool = False) -> tuple[int, str]:
    out = io.StringIO()
    return doctor(file, as_json, environ={}, console=Console(file=out, width=160)), out.getvalue()


def test_trouble_is_told_and_ends_with_1(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    with refusing_port() as port:
        file.write_text(CONFIG.format(port=port))
        code, text = run(file)
        assert code == 1
        assert "not reached directly" in text
        assert "NOT_SET is not set" in text
        code, text = run(file, as_json=True)
    assert (code, [f["step"] for f in json.loads(text)]) == (1, ["network", "key"])


def test_a_bad_file_ends_with_2(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    file.write_text("version: 2")
    assert run(file)[0] == 2
