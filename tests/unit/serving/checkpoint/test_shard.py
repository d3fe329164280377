"""Tensors copied from file to file."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.checkpoint import CheckpointError
from serving.checkpoint.header import Tensor, read_header
from serving.checkpoint.shard import PIECE_BYTES, pieces, same_bytes, write_shard
from tests.unit.serving.checkpoint.tiny import write


def test_a_written_shard_reads_back(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", {"a": ("BF16", (3,)), "b": ("U8", (5, 1))})
    write(tmp_path / "c.safetensors", {"c": ("F32", (2, 2))}, seed=1)
    source = [*read_header(tmp_path / "c.safetensors"), *read_header(tmp_path / "a.safetensors")]
    told: list[int] = []
    write_shard(tmp_path / "out.safetensors", source, told.append)
    made = {tensor.name: tensor for tensor in read_header(tmp_path / "out.safetensors")}
    assert {name: (t.dtype, t.shape) for name, t in made.items()} == {t.name: (t.dtype, t.shape) for t in source}
    assert all(same_bytes(made[tensor.name], tensor) for tensor in source)
    assert sum(told) == sum(tensor.size for tensor in source)


def test_large_tensors_come_in_pieces(tmp_path: Path) -> None:
    file = tmp_path / "x"
    with file.open("wb") as sparse:
        sparse.truncate(2 * PIECE_BYTES + 1)
    tensor = Tensor("x", "U8", (2 * PIECE_BYTES + 1,), file, 0, 2 * PIECE_BYTES + 1)
    assert list(map(len, pieces(tensor))) == [PIECE_BYTES, PIECE_BYTES, 1]


def test_other_bytes_are_seen(tmp_path: Path) -> None:
    write(tmp_path / "a", {"a": ("BF16", (3,))})
    write(tmp_path / "b", {"a": ("BF16", (3,))}, seed=1)
    (one,), (other,) = read_header(tmp_path / "a"), read_header(tmp_path / "b")
    assert same_bytes(one, one)
    assert not same_bytes(one, other)


def test_a_source_that_became_shorter_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a", {"a": ("BF16", (3,))})
    found = read_header(tmp_path / "a")
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is cut off inside a"):
        write_shard(tmp_path / "out", found, lambda count: None)


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FileExistsError):
        write_shard(tmp_path / "out", [], lambda count: None)
