"""The view of a Kimi K2 checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.checkpoint import CheckpointError, inspect, kimi_view
from tests.unit.serving.checkpoint.tiny import kimi_k2


def test_links_and_a_config_that_says_deepseek_v3(tmp_path: Path) -> None:
    path = kimi_k2().build(tmp_path / "kimi-ft", shards=2)
    before = (path / "config.json").read_bytes()
    view = kimi_view(path, tmp_path / "views")
    assert view == tmp_path / "views" / "kimi-ft"
    assert {file.name for file in view.iterdir()} == {file.name for file in path.iterdir()}
    assert all(file.is_symlink() for file in view.iterdir() if file.name != "config.json")
    assert (path / "config.json").read_bytes() == before
    assert json.loads((view / "config.json").read_text()) == {**json.loads(before), "model_type": "deepseek_v3"}
    assert inspect(view).family == "deepseek_v3"
    assert inspect(view).speculator == "mtp"


def test_it_is_made_once_and_anew_when_files_change(tmp_path: Path) -> None:
    path = kimi_k2().build(tmp_path / "kimi-ft")
    config = kimi_view(path, tmp_path / "views") / "config.json"
    made = config.stat().st_ino
    kimi_view(path, tmp_path / "views")
    assert config.stat().st_ino == made
    (path / "more.json").write_text("{}")
    assert (kimi_view(path, tmp_path / "views") / "more.json").is_symlink()
    changed = json.loads((path / "config.json").read_text()) | {"rope_theta": 1.0}
    (path / "config.json").write_text(json.dumps(changed))
    kimi_view(path, tmp_path / "views")
    assert json.loads(config.read_text())["rope_theta"] == 1.0
    assert [file.name for file in (tmp_path / "views").iterdir()] == ["kimi-ft"]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "views").write_text("a file")
    with pytest.raises(CheckpointError, match="cannot be written"):
        kimi_view(kimi_k2().build(tmp_path / "kimi-ft"), tmp_path / "views")
