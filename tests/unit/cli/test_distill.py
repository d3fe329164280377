"""`turnout checkpoint distill`: what it refuses, and its progress lines."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.distill import LINES, distill, progress


def refused(capsys: pytest.CaptureFixture[str], path: Path, **options: object) -> tuple[int, str]:
    given = {"text": path, "prompts": None, "settings": {}, "resume": False, "device": None, "threads": None, **options}
    code = distill(path, path / "out", **given)  # type: ignore[arg-type]
    return code, capsys.readouterr().err


def test_text_or_prompts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert refused(capsys, tmp_path, text=None) == (2, "turnout: give one of --text and --prompts\n")
    assert refused(capsys, tmp_path, prompts=tmp_path)[0] == 2


def test_a_device_that_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert refused(capsys, tmp_path, device="tpu") == (2, "turnout: --device tpu: cpu or cuda\n")


def test_no_checkpoint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    code, said = refused(capsys, tmp_path)
    assert code == 1
    assert "has no config.json" in said


def test_a_pipe_gets_some_lines_for_each_stage() -> None:
    out = io.StringIO()
    with progress(Console(file=out)) as report:
        for stage in ("asking", "training"):
            for step in range(1, 1001):
                report(stage, step / 1000, f"step {step}")
    lines = out.getvalue().splitlines()
    assert len(lines) == 2 * LINES
    assert lines[-1] == "training 100%  step 1000"


def test_a_terminal_gets_a_bar() -> None:
    out = io.StringIO()
    with progress(Console(file=out, force_terminal=True, width=100)) as report:
        report("training", 0.5, "half")
    assert "half" in out.getvalue()
