"""What a checkpoint began with: learned call by call, written and read back."""

from __future__ import annotations

import random
from statistics import pstdev

import pytest

from gateway.alarm.baseline import BASELINE_CALLS, ERRORS, USABLE_CALLS, Baseline, positions, sample
from gateway.alarm.observation import Observation


def learned(*calls: tuple[int, int]) -> Baseline:
    """From (accepted, draft tokens) of each call."""
    baseline = Baseline("text")
    for accepted, drafts in calls:
        baseline = baseline.plus(Observation("text", drafts, drafts, accepted, (drafts - accepted, accepted)))
    return baseline


@pytest.mark.parametrize(
    ("good", "total", "found"), [(5, 10, (0.5, 1.0)), (9, 4, (1.0, 0.5)), (-1, 8, (0.0, 1.0)), (1, 2, (0.5, 0.25))]
)
def test_a_call_with_few_drafts_counts_less(good: int, total: int, found: tuple[float, float]) -> None:
    assert sample(good, total) == found


def test_positions() -> None:
    assert positions((1, 1, 2)) == (0.75, 0.5)
    assert positions(()) == positions((0, 0)) == ()


def test_mean_and_spread_are_those_of_the_calls() -> None:
    chance = random.Random(1)
    calls = [(chance.randint(0, 20), 20) for _ in range(BASELINE_CALLS)]
    baseline = learned(*calls)
    rates = [accepted / drafts for accepted, drafts in calls]
    assert baseline.rate == pytest.approx(sum(rates) / len(rates))
    assert baseline.spread == pytest.approx(pstdev(rates))
    assert (baseline.calls, baseline.draft_tokens) == (BASELINE_CALLS, 20 * BASELINE_CALLS)
    assert baseline.per_position == pytest.approx((baseline.accepted / baseline.steps,))


def test_it_is_usable_and_then_final() -> None:
    counts = (USABLE_CALLS - 1, USABLE_CALLS, BASELINE_CALLS - 1, BASELINE_CALLS)
    made = [learned(*[(7, 10)] * calls) for calls in counts]
    assert [(b.usable, b.final) for b in made] == [(False, False), (True, False), (True, False), (True, True)]


def test_the_bound_allows_for_drift_and_for_its_own_error() -> None:
    steady = learned(*[(8, 10)] * 100)
    assert steady.bound(0.25) == pytest.approx(0.6)
    assert steady.bound(1.0) == 0
    spread = learned(*[(2, 10), (10, 10)] * 50)
    assert spread.bound(0.01) == pytest.approx(spread.rate - ERRORS * spread.spread / 10)
    assert Baseline("text").bound(0.25) == 0


def test_it_is_written_and_read_back() -> None:
    baseline = learned((7, 10), (3, 12))
    assert Baseline.from_json(baseline.to_json()) == baseline
    for text in ("", "{}", "[1]", '{"kind":"text","rate":2}', '{"kind":"text","calls":-1}'):
        with pytest.raises(ValueError, match="cannot be read"):
            Baseline.from_json(text)
