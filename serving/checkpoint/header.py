"""One safetensors header, read within bounds: 8 bytes of length (little endian), JSON, then the tensors' bytes.

The rules are those of the format: no gap and no overlap between tensors, no byte after the last one. A file that breaks
one is refused by every loader, minutes later. The tensors' bytes are not read here.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, TypeGuard

from serving.checkpoint.errors import CheckpointError

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
MAX_RANK = 8
LFS_POINTER = b"version https://git-lfs"

BITS: Mapping[str, int] = MappingProxyType(
    {
        "F4": 4,
        **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
        **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
        **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
        **dict.fromkeys(("U32", "I32", "F32"), 32),
        **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    }
)
"""Width of one element of each dtype."""

AGAIN = "copy the file again, or save the checkpoint anew"


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where one tensor lies; `start` counts bytes from the beginning of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    size: int
    """Bytes."""

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


def read_header(file: Path) -> tuple[Tensor, ...]:
    """The tensors of a safetensors file, in the order of their bytes. CheckpointError for what breaks the format."""
    try:
        with open_regular(file) as opened:
            total = os.fstat(opened.fileno()).st_size
            base, header = _json(opened, total, file.name)
    except OSError as error:
        raise CheckpointError(file.name, f"cannot be read ({error.strerror})", AGAIN) from None
    header.pop("__metadata__", None)
    tensors = sorted((_tensor(n, e, base, file) for n, e in header.items()), key=lambda t: (t.start, t.size))
    _check_layout(tensors, base, total, file.name)
    return tuple(tensors)


def open_regular(file: Path) -> BinaryIO:
    """Open a regular file for reading; OSError for anything else: opening a pipe or a device may block for ever."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return os.fdopen(descriptor, "rb")


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """A JSON object with unique keys. CheckpointError for anything else, however it is nested or encoded."""
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(where, f"is not valid JSON ({_short(error)})", AGAIN) from None
    if not isinstance(value, dict):
        raise CheckpointError(where, "is JSON, but not an object", AGAIN)
    return value


def _json(opened: BinaryIO, total: int, where: str) -> tuple[int, dict[str, Any]]:
    """Where the tensors' bytes begin, and the header."""
    start = opened.read(len(LFS_POINTER))
    if start == LFS_POINTER:
        raise CheckpointError(where, "is only a Git LFS pointer", "run `git lfs pull` in the checkpoint's repository")
    if len(start) < LENGTH_BYTES:
        raise CheckpointError(where, f"is cut off: {len(start)} bytes", AGAIN)
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(
            where, f"claims a header of {length} bytes, at most {MAX_HEADER_BYTES} are allowed", AGAIN
        )
    if LENGTH_BYTES + length > total:
        raise CheckpointError(where, f"is cut off inside its header: {total} bytes", AGAIN)
    opened.seek(LENGTH_BYTES)
    return LENGTH_BYTES + length, parse_json(opened.read(length), where)


def _tensor(name: str, entry: Any, base: int, file: Path) -> Tensor:
    """One entry of the header. CheckpointError where it is malformed or its size is not what dtype and shape say."""
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not (isinstance(dtype, str) and _naturals(shape) and _naturals(offsets) and len(offsets) == 2):
        raise CheckpointError(file.name, f"the header's entry for {_short(name)} is malformed", AGAIN)
    if len(shape) > MAX_RANK or dtype not in BITS:
        raise CheckpointError(file.name, f"{_short(name)} has dtype {_short(dtype)} and {len(shape)} dimensions", AGAIN)
    start, end = offsets
    bits = prod(shape) * BITS[dtype]
    if bits % 8 or end - start != bits // 8:
        text = f"{_short(name)} is {dtype} {shape}, which is not the {end - start} bytes that its offsets give it"
        raise CheckpointError(file.name, text, AGAIN)
    return Tensor(name, dtype, tuple(shape), file, base + start, end - start)


def _check_layout(tensors: list[Tensor], base: int, total: int, where: str) -> None:
    end = base
    for tensor in tensors:
        if tensor.start < end:
            raise CheckpointError(where, f"{_short(tensor.name)} overlaps the tensor before it", AGAIN)
        if tensor.start > end:
            raise CheckpointError(where, f"there are bytes of no tensor before {_short(tensor.name)}", AGAIN)
        end = tensor.start + tensor.size
    if end > total:
        raise CheckpointError(where, f"is cut off: {total} of {end} bytes are there", AGAIN)
    if end < total:
        raise CheckpointError(where, f"has {total - end} bytes after its last tensor", AGAIN)


def _naturals(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


def _short(value: object) -> str:
    """Short; CheckpointError makes it printable."""
    text = str(value)
    return text[:120] + ("..." if len(text) > 120 else "")
