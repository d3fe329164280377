"""Whatever the bytes are: a header is read, or CheckpointError tells why not, and nothing else happens."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.header import MAX_HEADER_BYTES, parse_json, read_header
from tests.unit.serving.checkpoint.tiny import raw

A: dict[str, Any] = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}


def file(folder: Path, header: object, body: bytes = bytes(12)) -> Path:
    path = folder / "x.safetensors"
    path.write_bytes(raw(json.dumps(header).encode(), body))
    return path


def test_tensors_come_with_their_place(tmp_path: Path) -> None:
    b = {"dtype": "F8_E4M3", "shape": [], "data_offsets": [12, 13]}
    path = file(tmp_path, {"b": b, "__metadata__": {"format": "pt"}, "a": A}, bytes(13))
    base = path.stat().st_size - 13
    assert [(t.name, t.shape, t.start - base, t.size, t.elements) for t in read_header(path)] == [
        ("a", (2, 3), 0, 12, 6),
        ("b", (), 12, 1, 1),
    ]


def test_an_empty_tensor_may_share_its_place(tmp_path: Path) -> None:
    empty = {"dtype": "BF16", "shape": [0, 3], "data_offsets": [0, 0]}
    assert {t.name for t in read_header(file(tmp_path, {"a": A, "empty": empty}))} == {"a", "empty"}


WRONG: list[tuple[object, bytes, str]] = [
    ({"a": {**A, "data_offsets": [0, 11]}}, bytes(11), "which is not the 11 bytes"),
    ({"a": {**A, "data_offsets": [12, 0]}}, bytes(12), "which is not the -12 bytes"),
    ({"a": {**A, "data_offsets": [-1, 11]}}, bytes(12), "is malformed"),
    ({"a": {**A, "shape": [True, 6]}}, bytes(12), "is malformed"),
    ({"a": {**A, "shape": [2**63, 3]}}, bytes(12), "is malformed"),
    ({"a": {**A, "shape": "23"}}, bytes(12), "is malformed"),
    ({"a": {**A, "dtype": "BF17"}}, bytes(12), "has dtype BF17"),
    ({"a": {**A, "shape": [1] * 9}}, bytes(12), "and 9 dimensions"),
    ({"a": {**A, "dtype": "F4", "shape": [3]}}, bytes(12), "is F4"),
    ({"a": []}, bytes(12), "is malformed"),
    ({"a": A, "b": A}, bytes(12), "overlaps"),
    ({"a": {**A, "data_offsets": [4, 16]}}, bytes(16), "bytes of no tensor before a"),
    ({"a": A}, bytes(11), "is cut off"),
    ({"a": A}, bytes(13), "1 bytes after its last tensor"),
    ([], b"", "not an object"),
    ({"\x1b[31m" + "n" * 500: []}, b"", r"entry for \?\[31mn+\.\.\. is malformed"),
]


@pytest.mark.parametrize(("header", "body", "reason"), WRONG, ids=[row[2] for row in WRONG])
def test_what_breaks_the_format_is_told(header: object, body: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=reason):
        read_header(file(tmp_path, header, body))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is cut off: 0 bytes"),
        (b"1234567", "is cut off: 7 bytes"),
        (raw(b"{}", length=3), "cut off inside its header"),
        (raw(b"{}", length=MAX_HEADER_BYTES + 1), "claims a header of 100000001 bytes"),
        (raw(b'{"a":1,"a":2}'), "a key is repeated"),
        (raw(b"[" * 1_000_000), "is not valid JSON"),
        (raw(b'{"a":' + b"9" * 10_000 + b"}"), "is not valid JSON"),
        (raw(b"\xff\xfe"), "is not valid JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    ],
)
def test_what_is_no_header_is_told(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=reason):
        read_header(path)


def test_a_folder_or_nothing_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(CheckpointError, match="cannot be read"):
            read_header(path)


def survives(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        path.write_bytes(content)
        try:
            tensors = read_header(path)
        except CheckpointError:
            return
        assert sum(tensor.size for tensor in tensors) <= len(content)
        assert all(tensor.start + tensor.size <= len(content) for tensor in tensors)


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(content: bytes) -> None:
    survives(content)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["BF16", "U8"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.fixed_dictionaries(
    {"dtype": VALUES | st.just("U8"), "shape": VALUES | st.just([4]), "data_offsets": VALUES | st.just([0, 4])}
)


@given(st.dictionaries(st.text(max_size=8), FIELDS | VALUES, max_size=4), st.binary(max_size=12))
def test_any_header_is_survived(header: dict[str, Any], body: bytes) -> None:
    survives(raw(json.dumps(header).encode(), body))


@given(st.binary(max_size=100))
def test_any_json_is_survived(text: bytes) -> None:
    with suppress(CheckpointError):
        assert isinstance(parse_json(text, "x"), dict)
