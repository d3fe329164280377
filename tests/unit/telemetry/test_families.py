"""Counters, histograms and gauges over an array of numbers."""

from __future__ import annotations

from gateway.telemetry.families import Level, Readings, Spread, Tally
from gateway.telemetry.numbers import Numbers


def test_a_counter() -> None:
    numbers = Numbers()
    tally = Tally("calls", "Calls.", ("model",), numbers)
    for model, amount in (("a", 1), ("b", 2.5), ("a", 3)):
        tally.add((model,), amount)
    assert tally.rows(numbers.scrape(), "count") == [{"model": "a", "count": 4}, {"model": "b", "count": 2.5}]
    assert [(s.name, s.value) for s in tally.family(numbers.scrape()).samples] == [
        ("turnout_calls_total", 4),
        ("turnout_calls_total", 2.5),
    ]


def test_a_histograms_buckets_hold_all_smaller_values() -> None:
    numbers = Numbers()
    spread = Spread("seconds", "Time.", (), (1, 2), numbers)
    for value in (0.5, 1, 1.5, 9):
        spread.observe((), value)
    assert spread.rows(numbers.scrape()) == [{"buckets": [[1, 2], [2, 3]], "count": 4, "sum": 12}]
    samples = {(s.name, s.labels.get("le")): s.value for s in spread.family(numbers.scrape()).samples}
    assert samples["turnout_seconds_bucket", "+Inf"] == samples["turnout_seconds_count", None] == 4


def test_a_gauge_is_read_when_it_is_published() -> None:
    numbers = Numbers()
    found: Readings = {("a",): 1.0}
    level = Level("depth", "Depth.", ("queue",), lambda: found, numbers)
    level.publish()
    found = {("b",): 2.0}
    assert level.values(numbers.scrape()) == {("a",): 1.0}
    level.publish()
    assert level.values(numbers.scrape()) == {("b",): 2.0}
    assert level.family().samples == []
