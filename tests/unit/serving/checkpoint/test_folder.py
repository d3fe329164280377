"""Files of a folder that are read, and what is found wrong with them (more of it: test_inspection.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.checkpoint import CheckpointError
from serving.checkpoint.folder import MAX_JSON_BYTES, read_bytes, read_checkpoint
from tests.unit.serving.checkpoint.tiny import dense, kimi_k25, write


def test_only_the_files_of_the_index_count(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "c", shards=2)
    write(path / "consolidated.safetensors", {"stray": ("BF16", (2,))})
    checkpoint = read_checkpoint(path)
    assert "stray" not in checkpoint.tensors
    assert [shard.name for shard in checkpoint.shards] == [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert checkpoint.problems == ()


def test_without_an_index_a_tensor_in_two_files_is_told(tmp_path: Path) -> None:
    path = dense().build(tmp_path / "c")
    write(path / "again.safetensors", {"lm_head.weight": ("BF16", (2,))})
    assert [(p.code, p.severity) for p in read_checkpoint(path).problems] == [("tensor-twice", "warning")]


def test_the_language_models_config_may_be_nested(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(kimi_k25().build(tmp_path / "c"))
    assert checkpoint.config["model_type"] == "kimi_k25"
    assert checkpoint.text_config["model_type"] == "kimi_k2"


def test_a_small_file_that_is_large_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as sparse:
        sparse.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(CheckpointError, match="larger than"):
        read_bytes(tmp_path / "config.json")
