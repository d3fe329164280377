"""Kinds of metrics over an array of numbers: counters, histograms, gauges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from gateway.telemetry.numbers import How, Numbers, Scrape

Readings = Mapping[tuple[str, ...], float]
"""Labels -> value."""


class Tally:
    """A counter: labels -> sum."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], numbers: Numbers) -> None:
        self.name, self.text, self.labels = f"turnout_{name}", text, labels
        self._numbers, self._values = numbers, numbers.values
        self._places: dict[tuple[str, ...], int] = {}

    def add(self, labels: tuple[str, ...], amount: float = 1) -> None:
        """Count; `labels`: their values, in order."""
        place = self._places.get(labels)
        if place is None:
            place = self._places[labels] = self._numbers.place(self.name, labels)
        self._values[place] += amount

    def rows(self, scrape: Scrape, value: str) -> list[dict[str, Any]]:
        """The same for programs: the labels, and the sum under the name `value`."""
        counts = scrape.counts(self.name)
        return [dict(zip(self.labels, labels, strict=True)) | {value: number} for labels, (number,) in counts.items()]

    def family(self, scrape: Scrape | None = None) -> Metric:
        """One sample per combination of labels."""
        family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        for labels, (value,) in scrape.counts(self.name).items() if scrape else ():
            family.add_metric(labels, value)
        return family


class Spread:
    """A histogram: labels -> how many values fell into each bucket, and their sum."""

    def __init__(
        self, name: str, text: str, labels: tuple[str, ...], bounds: tuple[float, ...], numbers: Numbers
    ) -> None:
        self.name, self.text, self.labels, self._bounds = f"turnout_{name}", text, labels, bounds
        self._numbers, self._values = numbers, numbers.values
        self._buckets = [*map(floatToGoString, bounds), "+Inf"]
        self._places: dict[tuple[str, ...], int] = {}

    def observe(self, labels: tuple[str, ...], value: float) -> None:
        """Count one value."""
        place = self._places.get(labels)
        if place is None:
            # the buckets' own counts, not yet added up; then the sum
            place = self._places[labels] = self._numbers.place(self.name, labels, len(self._buckets) + 1)
        self._values[place + bisect_left(self._bounds, value)] += 1
        self._values[place + len(self._buckets)] += value

    def rows(self, scrape: Scrape) -> list[dict[str, Any]]:
        """The same for programs: the labels, `buckets` as [upper bound, how many up to it], `count` (with those above
        all bounds) and `sum`."""
        rows = []
        for labels, (*counts, total) in scrape.counts(self.name).items():
            *added, count = accumulate(counts)
            buckets = [list(pair) for pair in zip(self._bounds, added, strict=True)]
            named = dict(zip(self.labels, labels, strict=True))
            rows.append({**named, "buckets": buckets, "count": count, "sum": total})
        return rows

    def family(self, scrape: Scrape | None = None) -> Metric:
        """Buckets that hold all smaller values too, as Prometheus wants them."""
        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        for labels, (*counts, total) in scrape.counts(self.name).items() if scrape else ():
            family.add_metric(labels, list(zip(self._buckets, accumulate(counts), strict=True)), total)
        return family


class Level:
    """A gauge whose values are read where they are, at each scrape of this process and (with several workers) every
    second for those of the others."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        read: Callable[[], Readings],
        numbers: Numbers,
        how: How = "sum",
    ) -> None:
        """`read`: the values of `labels` -> value; `how`: one number of those of several workers."""
        self.name, self.text, self.labels, self._read = f"turnout_{name}", text, labels, read
        self._numbers, self._how = numbers, how

    def publish(self) -> None:
        """Put the values where a scrape finds them."""
        self._numbers.forget(self.name)
        for labels, value in self._read().items():
            self._numbers.values[self._numbers.place(self.name, labels, gauge=True)] = value

    def values(self, scrape: Scrape) -> Readings:
        """One number for each combination of labels."""
        return scrape.gauges(self.name, self._how)

    def family(self, scrape: Scrape | None = None) -> Metric:
        """One sample per combination of labels."""
        family = GaugeMetricFamily(self.name, self.text, labels=self.labels)
        for labels, value in self.values(scrape).items() if scrape else ():
            family.add_metric(labels, value)
        return family
