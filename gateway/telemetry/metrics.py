"""Every metric of the gateway. Labels take configured names only, never what a caller can invent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.call import Call

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
"""Milliseconds to ten minutes: what language models take."""
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2)
_OWN_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)


class Metrics:
    """The metrics of one process."""

    def __init__(
        self, busy: Callable[[], Mapping[str, int]], breakers: Callable[[], Mapping[tuple[str, str], int]] = dict
    ) -> None:
        """Read at each scrape: `busy`, upstream -> requests under way; `breakers`, (upstream, model) -> state."""
        self.registry = CollectorRegistry()
        served = ("route", "model")
        self._requests = self._counter("requests", "Finished calls.", (*served, "upstream", "outcome"))
        self._tokens = self._counter("tokens", "Tokens by kind.", (*served, "kind"))
        self._attempts = self._counter("attempts", "Upstream calls by result.", ("model", "upstream", "result"))
        self._fallbacks = self._counter("fallbacks", "Calls that moved on.", ("route", "from", "to", "cause"))
        self._seconds = self._histogram("request_seconds", "First to last byte of a call.", served, _SECONDS)
        self._first_token = self._histogram("time_to_first_token_seconds", "Until the first token.", served, _SECONDS)
        self._per_token = self._histogram(
            "time_per_output_token_seconds", "Mean between the tokens of a stream.", served, _TOKEN_SECONDS
        )
        self._overhead = self._histogram("overhead_seconds", "The gateway's own time.", ("route",), _OWN_SECONDS)
        self.reloads = self._counter("config_reloads", "Reloads of the configuration.", ("result",))
        self._info = Gauge("turnout_config_info", "The configuration in force.", ("digest",), registry=self.registry)
        self.registry.register(
            _Read("in_flight", "Requests under way.", ("upstream",), lambda: {(u,): n for u, n in busy().items()})
        )
        text = "Whether a model is left alone: 0 closed, 1 half-open, 2 open."
        self.registry.register(_Read("breaker_state", text, ("upstream", "model"), breakers))
        self._parts: dict[tuple[str, str, str, str], _Row] = {}
        self._results: dict[tuple[str, str, str], Counter] = {}

    def _counter(self, name: str, text: str, labels: Iterable[str]) -> Counter:
        return Counter(f"turnout_{name}", text, tuple(labels), registry=self.registry)

    def _histogram(self, name: str, text: str, labels: Iterable[str], buckets: Iterable[float]) -> Histogram:
        return Histogram(f"turnout_{name}", text, tuple(labels), buckets=tuple(buckets), registry=self.registry)

    def configuration(self, digest: str) -> None:
        """The configuration with this digest is in force."""
        self._info.clear()
        self._info.labels(digest).set(1)

    def observe(self, call: Call, now: float) -> None:
        """Count one finished call."""
        answered = call.answered
        last = call.tried[-1] if call.tried else None
        model = answered.model.name if answered else last.model if last else ""
        upstream = answered.model.upstream.name if answered else last.upstream if last else ""
        row = self._row(call.plan.route if call.plan else "", model, upstream, call.outcome)
        row.requests.inc()
        row.seconds.observe(now - call.arrived)
        row.overhead.observe(max(0.0, now - call.arrived - call.waited))
        self._count_attempts(call)
        if answered is not None:
            self._count_tokens(call, row)

    def _row(self, route: str, model: str, upstream: str, outcome: str) -> _Row:
        key = (route, model, upstream, outcome)
        row = self._parts.get(key)
        if row is None:
            row = self._parts[key] = _Row(self, *key)
        return row

    def _count_tokens(self, call: Call, row: _Row) -> None:
        usage = call.usage
        for kind in ("prompt", "cached", "completion", "reasoning"):
            tokens = getattr(usage, kind)
            if tokens:
                row.tokens[kind].inc(tokens)
        if call.first_token is not None and call.last_token is not None:
            row.first_token.observe(call.first_token - call.arrived)
            if usage.completion > 1:
                row.per_token.observe((call.last_token - call.first_token) / (usage.completion - 1))

    def _count_attempts(self, call: Call) -> None:
        for tried in call.tried:
            key = (tried.model, tried.upstream, tried.cause or "ok")
            counter = self._results.get(key)
            if counter is None:
                counter = self._results[key] = self._attempts.labels(*key)
            counter.inc()
        if call.plan is not None:
            for before, after in pairwise(call.tried):
                if before.model == after.model:
                    continue  # made again, not moved on
                self._fallbacks.labels(call.plan.route, before.model, after.model, before.cause).inc()

    def exposition(self) -> bytes:
        """The text format of Prometheus."""
        return generate_latest(_Uncreated(self.registry))


class _Uncreated:
    """A registry without the `_created` series, which double the samples and say nothing that anybody asks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """See CollectorRegistry."""
        for family in self._registry.collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family


class _Row:
    """The children of one label combination, looked up once."""

    def __init__(self, m: Metrics, route: str, model: str, upstream: str, outcome: str) -> None:
        self.requests = m._requests.labels(route, model, upstream, outcome)
        self.seconds = m._seconds.labels(route, model)
        self.overhead = m._overhead.labels(route)
        self.first_token = m._first_token.labels(route, model)
        self.per_token = m._per_token.labels(route, model)
        self.tokens = {k: m._tokens.labels(route, model, k) for k in ("prompt", "cached", "completion", "reasoning")}


class _Read:
    """A gauge whose values are read where they are, at each scrape."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], read: Callable[[], Mapping[Any, int]]) -> None:
        """`read`: the values of `labels` -> value."""
        self._name, self._text, self._labels, self._read = f"turnout_{name}", text, labels, read

    def describe(self) -> Iterable[Metric]:
        """No values are read at registration."""
        return [GaugeMetricFamily(self._name, self._text, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        """One sample per combination of labels."""
        family = GaugeMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in self._read().items():
            family.add_metric(labels, value)
        return [family]
