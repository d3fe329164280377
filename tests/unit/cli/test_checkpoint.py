"""`turnout checkpoint`: a table on a terminal, plain lines elsewhere, JSON for programs, and the exit code."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.checkpoint import graft, inspect
from tests.unit.serving.checkpoint.tiny import mimo


def seen(path: Path, against: Path | None = None, as_json: bool = False, terminal: bool = False) -> tuple[int, str]:
    out = io.StringIO()
    console = Console(file=out, width=160, force_terminal=terminal, color_system=None)
    return inspect(path, against, None, as_json, console=console), out.getvalue()


def stripped(folder: Path) -> Path:
    tiny = mimo()
    tiny.drop(lambda name: "mtp_layers" in name)
    return tiny.build(folder)


def test_plain_lines_and_the_exit_code(tmp_path: Path) -> None:
    code, text = seen(mimo().build(tmp_path / "whole"))
    assert code == 0
    assert text.splitlines()[0] == "ok: MiMoForCausalLM, family mimo"
    assert text.splitlines()[-1] == "ok: it serves, with speculator mtp"
    code, text = seen(stripped(tmp_path / "ft"), tmp_path / "whole")
    assert code == 1
    assert "\nwarning: config.json declares 1 MTP layer(s), the checkpoint holds no tensor of them [num_nextn_" in text
    assert "\nwarning: against whole: 13 tensors dropped" in text
    assert text.splitlines()[-1] == "warning: it serves without MTP, but not well: 1 warning(s) above"


def test_a_table_on_a_terminal(tmp_path: Path) -> None:
    code, text = seen(stripped(tmp_path / "ft"), terminal=True)
    assert code == 1
    assert "what to do" in text.splitlines()[0]


def test_json(tmp_path: Path) -> None:
    code, text = seen(stripped(tmp_path / "ft"), as_json=True)
    content = json.loads(text)
    assert (code, content["serves"], content["speculator"], content["family"]) == (1, True, None, "mimo")
    assert {"severity", "code", "text", "where", "remedy"} == content["findings"][0].keys()


def test_wrong_use_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = mimo().build(tmp_path / "whole")
    assert seen(tmp_path / "gone")[0] == seen(path, tmp_path / "gone")[0] == seen(tmp_path)[0] == 2
    assert graft(path, tmp_path / "gone", tmp_path / "out", False, False) == 2
    assert f"turnout: {tmp_path}/gone: is not a folder\n" in capsys.readouterr().err


def test_a_graft_ends_with_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, tuned, out = mimo().build(tmp_path / "base"), stripped(tmp_path / "ft"), io.StringIO()
    assert graft(tuned, base, tmp_path / "out", False, False, console=Console(file=out, width=160)) == 0
    assert out.getvalue().splitlines()[-1] == "ok: it serves, with speculator mtp"
    assert graft(base, base, tmp_path / "again", False, False) == 1
    assert "nothing is grafted: the fine-tune has its MTP layers" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()
