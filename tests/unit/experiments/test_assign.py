"""Assignment: pure, proportional, moving no more units than the weights do."""

from __future__ import annotations

import hashlib

import pytest

from gateway.config.runtime import Experiment
from gateway.experiments.assign import Splits, assign, share

UNITS = [b"conversation-%d" % n for n in range(20_000)]


def arms(weights: dict[str, float], salt: str = "s") -> list[str]:
    return [assign("e", salt, weights, unit).arm for unit in UNITS]


def test_the_share_is_the_documented_hash() -> None:
    digest = hashlib.sha256(b"ft-vs-base\x1funit").digest()
    assert share("ft-vs-base", b"unit") == int.from_bytes(digest[:8], "big") / 2**64


@pytest.mark.parametrize(("a", "b"), [(50, 50), (90, 10), (1, 99)])
def test_arms_get_their_weights(a: float, b: float) -> None:
    got = arms({"a": a, "b": b}).count("a") / len(UNITS)
    assert abs(got - a / (a + b)) < 4 * (0.25 / len(UNITS)) ** 0.5
    decision = assign("e", "s", {"a": a, "b": b}, b"u")
    assert decision.probability == {"a": a, "b": b}[decision.arm] / (a + b)


def test_a_change_of_weights_moves_only_as_many() -> None:
    before, after = arms({"a": 50, "b": 50}), arms({"a": 60, "b": 40})
    moved = [(x, y) for x, y in zip(before, after, strict=True) if x != y]
    assert set(moved) == {("b", "a")}
    assert abs(len(moved) / len(UNITS) - 0.10) < 0.01


def test_a_weight_of_zero_means_never() -> None:
    assert set(arms({"a": 0, "b": 1, "c": 0})) == {"b"}


def test_experiments_are_independent() -> None:
    both = [x == y for x, y in zip(arms({"a": 1, "b": 1}, "one"), arms({"a": 1, "b": 1}, "two"), strict=True)]
    assert abs(sum(both) / len(UNITS) - 0.5) < 0.02


def test_a_split_takes_only_its_rules() -> None:
    splits = Splits({"e": Experiment("e", "auto", {"a": 1.0, "b": 1.0}, ("task",), "key", "salt")})
    asked: list[str] = []

    def unit(kind: str) -> bytes:
        asked.append(kind)
        return b"unit"

    assert splits.assign("auto", "chat", unit) is None
    assert splits.assign("other", "task", unit) is None
    assert asked == []
    split = splits.assign("auto", "task", unit)
    assert split is not None
    assert (split.experiment, split.probability, asked) == ("e", 0.5, ["key"])
