"""Writes one safetensors file out of tensors that lie in other files, a piece at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.header import AGAIN, LENGTH_BYTES, Tensor, open_regular

PIECE_BYTES = 8 * 1024 * 1024
"""Never more of a checkpoint is in memory."""
ALIGNMENT = 8


def write_shard(file: Path, tensors: Iterable[Tensor], on_bytes: Callable[[int], None]) -> None:
    """Write `tensors` into a new `file`; `on_bytes` is told after each piece how many bytes it had.

    CheckpointError where a source is cut off, OSError where the disk is full.
    """
    kept = list(tensors)
    with file.open("xb") as out:
        header = _header(kept)
        out.write(len(header).to_bytes(LENGTH_BYTES, "little") + header)
        for tensor in kept:
            for piece in pieces(tensor):
                out.write(piece)
                on_bytes(len(piece))
        out.flush()
        os.fsync(out.fileno())


def pieces(tensor: Tensor) -> Iterable[bytes]:
    """The bytes of one tensor. CheckpointError where its file is shorter than it was."""
    with open_regular(tensor.file) as source:
        source.seek(tensor.start)
        left = tensor.size
        while left:
            piece = source.read(min(left, PIECE_BYTES))
            if not piece:
                raise CheckpointError(tensor.file.name, f"is cut off inside {tensor.name}", AGAIN)
            left -= len(piece)
            yield piece


def same_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same bytes."""
    return one.size == other.size and all(a == b for a, b in zip(pieces(one), pieces(other), strict=True))


def _header(tensors: list[Tensor]) -> bytes:
    """The JSON header, padded with spaces so that the tensors begin aligned."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.size
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % ALIGNMENT)
