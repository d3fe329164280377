"""The new folder has every tensor once, and the target stays as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
from serving.checkpoint.folder import read_checkpoint
from serving.checkpoint.inspection import inspect
from serving.distill.model import load
from serving.distill.write import write
from tests.unit.serving.distill.conftest import Make


def written(folder: Path, out: Path) -> None:
    target = read_checkpoint(folder)
    model, _ = load(target, "cpu", 0)
    out.mkdir(exist_ok=True)
    write(target, model, out)


def test_a_dropped_layer_is_there_again_beside_links(make: Make, tmp_path: Path) -> None:
    folder, out = make("dropped", drop="mtp_layers"), tmp_path / "out"
    written(folder, out)
    assert read_checkpoint(out).tensors.keys() == read_checkpoint(make("whole")).tensors.keys()
    assert (out / "model-main.safetensors").resolve() == folder / "model.safetensors"
    assert (out / "tokenizer.json").resolve() == folder / "tokenizer.json"
    assert inspect(out).worst in ("ok", "note")


def test_a_layer_that_was_there_is_replaced_and_nothing_is_there_twice(make: Make, tmp_path: Path) -> None:
    folder, out = make("whole"), tmp_path / "out"
    before = (folder / "model.safetensors").read_bytes()
    written(folder, out)
    assert read_checkpoint(out).problems == ()
    assert read_checkpoint(out).tensors.keys() == read_checkpoint(folder).tensors.keys()
    assert not (out / "model-main.safetensors").is_symlink()
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_result_can_be_the_next_target_and_be_written_over(make: Make, tmp_path: Path) -> None:
    folder, out, second = make("dropped", drop="mtp_layers"), tmp_path / "out", tmp_path / "second"
    written(folder, out)
    written(folder, out)
    written(out, second)
    assert read_checkpoint(second).tensors.keys() == read_checkpoint(out).tensors.keys()
    assert read_checkpoint(out).problems[1:] == read_checkpoint(second).problems[1:] == ()


def test_a_plain_qwen2_is_served_as_mimo_afterwards(make: Make, tmp_path: Path) -> None:
    folder = make("plain", drop="mtp_layers", architectures=["Qwen2ForCausalLM"], num_nextn_predict_layers=0)
    written(folder, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["architectures"], config["num_nextn_predict_layers"]) == (["MiMoForCausalLM"], 1)
