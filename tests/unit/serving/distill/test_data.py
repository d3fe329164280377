"""Pieces, rows, and what a log of prompts holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.checkpoint.errors import CheckpointError
from serving.distill.data import Data, Piece, load_pieces, prompts, save_pieces, split, text_pieces

A, B, C = Piece((1, 2, 3), 2), Piece((4, 5), 2), Piece((6, 7, 8, 9), 1)


def codes(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def write(file: Path, *lines: object) -> Path:
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return file


def test_a_row_is_pieces_in_a_line_cut_to_the_window() -> None:
    rows = Data((A,), (C, B)).held_rows(5)
    assert rows == [[(6, False), (7, False), (8, False), (9, True), (4, True)]]


def test_held_rows_go_through_all_that_is_held() -> None:
    rows = Data((A,), (A, B, C)).held_rows(4)
    assert [[token for token, _ in row] for row in rows] == [[1, 2, 3, 4], [6, 7, 8, 9]]


def test_the_same_seed_gives_the_same_rows_and_another_one_others() -> None:
    data = Data(tuple(Piece((n,), 1) for n in range(100)), ())
    assert data.batch(2, 10, "0/1/0") == data.batch(2, 10, "0/1/0")
    assert data.batch(2, 10, "0/1/0") != data.batch(2, 10, "0/1/1")
    assert [len(row) for row in data.batch(2, 10, "0")] == [10, 10]


def test_a_tenth_is_held_out() -> None:
    pieces = [Piece((n,), 1) for n in range(25)]
    data = split(pieces)
    assert data.held == (pieces[9], pieces[19])
    assert {*data.trained, *data.held} == {*pieces}
    assert len(data.trained) == 23


def test_of_few_pieces_the_last_is_held_out() -> None:
    assert split([A, B]) == Data((A,), (B,))


@pytest.mark.parametrize("pieces", [[], [A]])
def test_too_little_text(pieces: list[Piece]) -> None:
    with pytest.raises(CheckpointError, match="too few"):
        split(pieces)


def test_text_is_ended_and_cut(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcd")
    assert list(text_pieces(tmp_path / "a.txt", codes, 0, 3)) == [Piece((97, 98, 99), 3), Piece((100, 0), 2)]


def test_of_a_folder_all_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.md").write_text("a")
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe\x00")
    write(tmp_path / "c.jsonl", {"text": "c"}, {"other": 1})
    assert list(text_pieces(tmp_path, codes, None, 9)) == [Piece((99,), 1), Piece((97,), 1)]


def test_text_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        list(text_pieces(tmp_path / "none", codes, None, 9))


def test_prompts_of_a_log(tmp_path: Path) -> None:
    user, said = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}
    log = write(tmp_path / "log.jsonl", {"messages": [user, said], "tools": [{"a": 1}]}, "", {"prompt": "hi"}, {"x": 1})
    assert prompts(log) == [{"messages": [user], "tools": [{"a": 1}]}, {"messages": [user], "tools": None}]


def test_a_prompt_that_comes_twice_counts_once(tmp_path: Path) -> None:
    assert len(prompts(write(tmp_path / "log.jsonl", {"prompt": "hi"}, {"prompt": "hi"}))) == 1


@pytest.mark.parametrize("line", ["[1]", "{", "[" * 100_000, {"messages": 1}, {"prompt": 1}, {"messages": []}])
def test_a_log_without_prompts(tmp_path: Path, line: object) -> None:
    with pytest.raises(CheckpointError, match=r"no prompts|line 1"):
        prompts(write(tmp_path / "log.jsonl", line))


def test_a_log_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(CheckpointError, match=r"log\.jsonl: cannot be read: it is no UTF-8 text"):
        prompts(tmp_path / "log.jsonl")


def test_pieces_can_be_kept(tmp_path: Path) -> None:
    save_pieces(tmp_path / "kept", [A, B, C])
    assert load_pieces(tmp_path / "kept") == [A, B, C]
