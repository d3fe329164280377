"""The data sets of the task classifier, and what the shipped weights are worth on the held-out prompts: totals only."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.routing.tasks.classifier import Classifier
from gateway.routing.tasks.keywords import by_opening
from training.tasks.compose import LANGS, TASKS, TRAIN, compose
from training.tasks.evaluate import main
from training.tasks.near import letters
from training.tasks.train import DEVELOPMENT, HELD_OUT, WRITTEN, read, training_set

FROZEN = {
    DEVELOPMENT: "a1a0b70846c0ddcb9031d4c661e30518bb9fe8d3bdcdd8d4df479dbd0909f626",
    HELD_OUT: "b2b3243640438a2092b97c5cc60fc02533f628a15dbd119cc5b41038865abdbb",
}


@pytest.mark.parametrize("path", FROZEN, ids=lambda path: path.stem)
def test_held_out_prompts_are_the_frozen_ones(path: Path) -> None:
    assert hashlib.sha256(path.read_bytes()).hexdigest() == FROZEN[path]


@pytest.mark.parametrize("path", FROZEN, ids=lambda path: path.stem)
def test_held_out_prompts_are_spread_evenly(path: Path) -> None:
    counts = Counter((row["task"], row["lang"]) for row in read(path))
    assert counts == {(task, lang): 15 for task in TASKS for lang in LANGS}


def test_the_training_set_is_what_its_phrases_make() -> None:
    rows = read(TRAIN)
    assert compose() == rows
    assert len(rows) == len({row["text"] for row in rows}) >= 1500


def test_written_prompts_are_there_once_and_in_number() -> None:
    rows = read(*WRITTEN)
    assert {row["task"] for row in rows} == set(TASKS)
    assert len(rows) == len({row["text"] for row in rows}) >= 2000


@pytest.fixture(scope="module")
def learned() -> list[dict[str, Any]]:
    return training_set()


@pytest.mark.seconds
def test_nothing_that_is_learned_from_is_a_held_out_prompt(learned: list[dict[str, Any]]) -> None:
    assert len(learned) >= 8000
    both = {letters(row["text"]) for row in learned} & {letters(row["text"]) for row in read(*FROZEN)}
    assert len(both - {""}) == 0, "do not look which: that would spoil them"


@pytest.mark.seconds
def test_openings_are_right(learned: list[dict[str, Any]]) -> None:
    said = [(by_opening(row["text"]), row["task"]) for row in learned]
    named = [(answer, task) for answer, task in said if answer is not None]
    assert len(named) > 100
    assert sum(answer == task for answer, task in named) >= 0.99 * len(named)


@pytest.fixture(scope="module")
def verdicts() -> list[tuple[str, bool]]:
    classifier = Classifier()
    return [(row["lang"], classifier.classify(row["text"])[0] == row["task"]) for row in read(HELD_OUT)]


@pytest.mark.parametrize(("langs", "least"), [(("en", "zh"), 0.9), (("en",), 0.85), (("zh",), 0.85)])
def test_held_out_accuracy(verdicts: list[tuple[str, bool]], langs: tuple[str, ...], least: float) -> None:
    right = [verdict for lang, verdict in verdicts if lang in langs]
    assert sum(right) / len(right) >= least


@pytest.mark.slow
def test_the_command_prints_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    printed = capsys.readouterr().out
    assert re.search(r"^development: all 9\d\.\d% of 300, en ", printed, re.MULTILINE)
    assert re.search(r"^held-out: all 9\d\.\d% of 300, en ", printed, re.MULTILINE)
    assert re.search(r"^4096 bytes, .*: p50 \d+\.\d\d ms, p99 \d+\.\d\d ms", printed, re.MULTILINE)
    assert "answer (column)" in printed
