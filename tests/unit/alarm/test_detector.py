"""The e-detector: no bet gains on average while the mean holds, false alarms are as rare as promised."""

from __future__ import annotations

import random
from itertools import product
from statistics import mean, stdev

import pytest

from gateway.alarm.detector import FRACTIONS, Detector, stake


@pytest.mark.parametrize(("bound", "weight"), [(0.1, 1.0), (0.5, 0.3), (0.9, 1.0)])
def test_a_bet_never_loses_all_and_gains_nothing_at_the_bound(bound: float, weight: float) -> None:
    for fraction in FRACTIONS:
        assert 1 + fraction * stake(1.0, weight, bound) > 0
        # a mean at the bound, by its extremes 0 and 1
        gain = bound * stake(1.0, weight, bound) + (1 - bound) * stake(0.0, weight, bound)
        assert gain == pytest.approx(0)


def test_its_expectation_grows_by_one_with_each_sample_at_most() -> None:
    """Exactly, over all outcomes of six samples at the bound: E[S_n] <= n for each bet, so an alarm at 1 / alpha comes
    after 1 / alpha samples on average at least (the Shiryaev-Roberts bound)."""
    bound, samples = 0.7, 6
    total = [0.0] * len(FRACTIONS)
    for outcome in product((0.0, 1.0), repeat=samples):
        chance = 1.0
        detector = Detector(1e-9)
        for value in outcome:
            chance *= bound if value else 1 - bound
            detector.add(value, 1.0, bound)
        total = [t + chance * s for t, s in zip(total, detector._sums, strict=True)]
    assert total == pytest.approx([samples] * len(FRACTIONS))


@pytest.mark.seconds
def test_false_alarms_are_as_rare_as_promised() -> None:
    """At the worst mean that is allowed, an alarm on average after 1 / alpha = 1,000 samples or later; within two
    standard errors of this simulation."""
    chance, waits = random.Random(4), []
    for _ in range(60):
        detector, wait = Detector(1e-3), 1
        while not detector.add(chance.betavariate(7, 3), 1.0, 0.7) and wait < 10_000:
            wait += 1
        waits.append(wait)
    assert mean(waits) + 2 * stdev(waits) / len(waits) ** 0.5 > 1_000


def test_evidence_and_onset() -> None:
    detector, seen = Detector(1e-4), []
    for value in [0.8] * 40:
        detector.add(value, 1.0, 0.6)
        seen.append((value, 1.0, 0.6))
    assert detector.evidence < 0.3
    alarmed = False
    while not alarmed:
        before = detector.evidence
        alarmed = detector.add(0.2, 1.0, 0.6)
        seen.append((0.2, 1.0, 0.6))
        assert detector.evidence > before
    assert detector.evidence == 1.0
    assert len(seen) - 40 < 40
    assert detector.onset(reversed(seen)) == len(seen) - 40
    detector.clear()
    assert detector.evidence == 0.0


def test_a_sample_without_weight_says_nothing() -> None:
    detector = Detector(1e-3)
    assert not any(detector.add(0.0, 0.0, 0.9) for _ in range(500))
    assert detector.evidence < 1
