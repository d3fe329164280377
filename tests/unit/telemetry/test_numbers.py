"""Numbers of several workers: shared, summed, and kept when one of them ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.telemetry.numbers import SLOTS, Numbers, fold


def test_a_place_is_given_once() -> None:
    numbers = Numbers()
    first = numbers.place("a", ("x",), 3)
    assert (numbers.place("a", ("x",), 3), numbers.place("a", ("y",))) == (first, first + 3)
    numbers.values[first + 1] += 2
    assert numbers.scrape().counts("a") == {("x",): [0, 2, 0], ("y",): [0]}
    assert numbers.scrape().counts("unknown") == {}


def test_the_room_has_an_end() -> None:
    numbers = Numbers()
    numbers.place("a", (), SLOTS)
    with pytest.raises(MemoryError, match="combinations of labels"):
        numbers.place("a", ("one more",))
    assert numbers.place("a", (), SLOTS) == 0


def test_gauges_are_combined_and_can_be_forgotten(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path)
    for name, value in (("x", 2.0), ("y", 3.0)):
        numbers.values[numbers.place("g", (name,), gauge=True)] = value
    assert numbers.scrape().gauges("g", "sum") == {("x",): 2, ("y",): 3}
    numbers.forget("g")
    assert numbers.scrape().gauges("g", "min") == {}


def test_folding_adds_up_again_and_again(tmp_path: Path) -> None:
    for rounds in (1, 2, 3):
        numbers = Numbers(tmp_path)
        numbers.values[numbers.place("c", ("x",))] += 5
        numbers.values[numbers.place("g", (), gauge=True)] = 1
        fold(tmp_path, os.getpid())
        assert numbers.scrape().counts("c") == {("x",): [5 * rounds]}
        assert numbers.scrape().gauges("g", "sum") == {}
    fold(tmp_path, os.getpid())  # nothing is left to fold
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ended.names", "ended.values", "lock"]


def test_a_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path)
    numbers.place("c", ("x",))
    with (tmp_path / f"{os.getpid()}.names").open("ab") as file:
        file.write(b'["c", ["y"], 1')
    assert numbers.scrape().counts("c") == {("x",): [0]}
