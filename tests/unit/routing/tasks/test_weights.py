"""The shipped file, and sums over packed rows."""

from __future__ import annotations

import math

import pytest

from gateway.config.crosscheck import BUILT_IN_TASKS
from gateway.routing.tasks.weights import FILE, Stored, Weights
from training.tasks.train import digest


def small(**changes: object) -> Stored:
    """Two tasks, two features."""
    rows = {"a": bytes([128 + 100, 128 - 100, 10]), "b": bytes([128 - 127, 128 + 127, 200])}
    values = {"digest": "", "tasks": ("x", "y"), "bias": (0.5, -0.5), "scale": 0.01, "threshold": 0.3}
    return Stored(**{**values, "lexicon": {}, "rows": rows, **changes})  # type: ignore[arg-type]


def softmax(*scores: float) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def test_scores_are_those_of_the_rows() -> None:
    weights = Weights(small())
    assert weights.probabilities(()) == pytest.approx(softmax(0.5, -0.5))
    assert weights.probabilities({"a", "unknown"}) == pytest.approx(softmax(1.5, -1.5))
    both = [0.5 + 0.01 * (100 - 127) / math.sqrt(2), -0.5 + 0.01 * (127 - 100) / math.sqrt(2)]
    assert weights.probabilities({"a", "b"}) == pytest.approx(softmax(*both))


def test_lanes_do_not_run_over() -> None:
    rows = {str(i): bytes([255, 1, 0]) for i in range(5000)}
    weights = Weights(small(rows=rows, scale=0.0001))
    score = 0.0001 * 127 * math.sqrt(5000)
    assert weights.probabilities(rows) == pytest.approx(softmax(0.5 + score, -0.5 - score))


def test_rarity_is_the_last_byte() -> None:
    assert Weights(small()).rarity == {"a": 10, "b": 200}


def test_the_shipped_weights_are_made_from_the_sources_in_the_repository() -> None:
    assert Weights.load().stored.digest == digest()


def test_the_shipped_weights_know_the_built_in_tasks() -> None:
    assert set(Weights.load().tasks) == set(BUILT_IN_TASKS)


def test_the_file_is_small() -> None:
    assert FILE.stat().st_size < 600_000
