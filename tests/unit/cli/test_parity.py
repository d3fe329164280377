"""`turnout engine NAME --parity`: what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import parity as module
from gateway.cli.parity import parity
from serving.engine import EngineFailed
from serving.parity import Report, Side, Verdict

CONFIG = """
version: 1
upstreams:
  tao: {base_url: "https://taotoken.net/api", api_key: sk-up}
  local: {engine: {checkpoint: ft, port: 8100, speculative: {method: mtp}}}
models:
  quality: {upstream: local, model: demo-ft}
"""
SIDE = Side((), 1.5, 1.8)
DIFFERS = Verdict("different", 3, 0.7, "[x]", "y")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "routing.yaml").write_text(CONFIG)
    return tmp_path / "routing.yaml"


def answers(monkeypatch: pytest.MonkeyPatch, *verdicts: Verdict) -> None:
    async def run(*_: Any) -> Report:
        if not verdicts:
            raise EngineFailed("local", "no memory")
        return Report(SIDE, SIDE, verdicts)

    monkeypatch.setattr(module, "run", run)


@pytest.mark.parametrize(("verdict", "code"), [(Verdict("same"), 0), (Verdict("tie", 0, 0.01), 0), (DIFFERS, 1)])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_report(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verdict: Verdict,
    code: int,
    as_json: bool,
) -> None:
    answers(monkeypatch, verdict, Verdict("same"))
    assert parity(file, "local", 2, None, as_json) == code
    out = capsys.readouterr().out
    if as_json:
        document = json.loads(out)
        assert (document["prompts"], document[verdict.result] >= 1) == (2, True)
        assert document["results"][0]["result"] == verdict.result
    else:
        assert "2 prompts (sample seed 20)" in out
        assert ("[x]" in out) is (verdict is DIFFERS)
        assert "acceptance length 1.80" in out


def test_nothing_that_could_be_compared_is_no_success(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, Verdict("failed", None, None, "HTTP 400", "HTTP 400"))
    assert parity(file, "local", 1, None, False) == 1
    assert "1 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "prompts", "code", "why"),
    [
        ("locl", None, 2, 'no upstream is called "locl", did you mean "local"?'),
        ("tao", None, 2, "has no `engine:`"),
        ("local", Path("none"), 2, "none: No such file"),
        ("local", None, 1, "engine local: no memory"),
    ],
)
def test_what_cannot_be_done(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    prompts: Path | None,
    code: int,
    why: str,
) -> None:
    answers(monkeypatch)
    assert parity(file, name, 2, prompts, False) == code
    assert why in capsys.readouterr().err
