"""`turnout doctor`: a table for people, JSON for programs, an exit code for scripts."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.doctor import doctor
from tests.fakes import Upstream, refusing_port

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
    told = [(f["upstream"], f["step"], f["good"]) for f in json.loads(text)]
    assert (code, told) == (
        1,
        [
            ("gone", "key", None),
            ("gone", "base URL", None),
            ("gone", "model id", None),
            ("gone", "network", False),
            ("off", "key", False),
            ("off", "base URL", None),
        ],
    )


@pytest.mark.parametrize(("second", "code", "shown"), [("good", 0, "ok"), ("bad", 1, "no")])
async def test_replicas_have_a_column(upstream: Upstream, tmp_path: Path, second: str, code: int, shown: str) -> None:
    upstream.models = ["x"]
    async with Upstream(models=["x"] if second == "good" else ["[x]"]) as other:
        urls = [upstream.url, other.url]
        file = tmp_path / "routing.yaml"
        models = {"m": {"upstream": "up", "model": "x"}}
        file.write_text(json.dumps({"version": 1, "upstreams": {"up": {"base_url": urls}}, "models": models}))
        ended, text = await asyncio.to_thread(run, file)
    assert ended == code
    rows = [line.split() for line in text.splitlines() if "model id" in line]
    assert [(row[1], row[2]) for row in rows] == [(urls[0], "ok"), (urls[1], shown)]
    assert "replica" in text.splitlines()[0]
    assert ("Nearest: [x]." in text) == (second == "bad")


def test_a_bad_file_ends_with_2(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    file.write_text("version: 2")
    assert run(file)[0] == 2
