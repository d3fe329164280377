"""The data sets of the task classifier, and what the shipped weights are worth on the held-out prompts."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from typing import Any

import pytest

from gateway.routing.tasks.classifier import Classifier
from gateway.routing.tasks.keywords import by_opening
from training.tasks.compose import LANGS, TASKS, TRAIN, compose
from training.tasks.evaluate import HELD_OUT, main
from training.tasks.train import read

FROZEN = "a1a0b70846c0ddcb9031d4c661e30518bb9fe8d3bdcdd8d4df479dbd0909f626"


def held_out() -> list[dict[str, Any]]:
    return read(HELD_OUT)


def plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


def grams(text: str) -> set[str]:
    text = plain(text)[:400]
    return {text[i : i + 4] for i in range(len(text) - 3)}


def test_the_held_out_prompts_are_the_frozen_ones() -> None:
    assert hashlib.sha256(HELD_OUT.read_bytes()).hexdigest() == FROZEN


def test_held_out_prompts_are_spread_evenly() -> None:
    counts = Counter((row["task"], row["lang"]) for row in held_out())
    assert counts == {(task, lang): 15 for task in TASKS for lang in LANGS}


def test_the_training_set_is_what_its_phrases_make() -> None:
    rows = read(TRAIN)
    assert compose() == rows
    assert len(rows) == len({row["text"] for row in rows}) >= 1500


def test_no_training_text_resembles_a_held_out_one() -> None:
    """By the share of four-letter pieces that two texts have in common."""
    sizes, having = [], defaultdict(list)
    for number, row in enumerate(read(TRAIN)):
        pieces = grams(row["text"])
        sizes.append(len(pieces))
        for piece in pieces:
            having[piece].append(number)
    exact = {plain(row["text"]) for row in read(TRAIN)}
    for row in held_out():
        mine = grams(row["text"])
        shared = Counter(number for piece in mine for number in having.get(piece, ()))
        near = max((count / (len(mine) + sizes[number] - count) for number, count in shared.items()), default=0)
        assert near < 0.6, row["text"]
        assert not plain(row["text"]) or plain(row["text"]) not in exact


def test_openings_are_right() -> None:
    said = [(by_opening(row["text"]), row["task"]) for row in read(TRAIN)]
    named = [(answer, task) for answer, task in said if answer is not None]
    assert len(named) > 100
    assert sum(answer == task for answer, task in named) >= 0.99 * len(named)


@pytest.fixture(scope="module")
def verdicts() -> list[tuple[str, bool]]:
    classifier = Classifier()
    return [(row["lang"], classifier.classify(row["text"])[0] == row["task"]) for row in held_out()]


@pytest.mark.parametrize(("langs", "least"), [(("en", "zh"), 0.9), (("en",), 0.85), (("zh",), 0.85)])
def test_held_out_accuracy(verdicts: list[tuple[str, bool]], langs: tuple[str, ...], least: float) -> None:
    right = [verdict for lang, verdict in verdicts if lang in langs]
    assert sum(right) / len(right) >= least


@pytest.mark.slow
def test_the_command_prints_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    printed = capsys.readouterr().out
    assert re.search(r"^all: 9\d\.\d% of 300$", printed, re.MULTILINE)
    assert re.search(r"^4096 bytes, .*: p50 \d+\.\d\d ms, p99 \d+\.\d\d ms", printed, re.MULTILINE)
    assert "confusion" in printed or "answer (column)" in printed
