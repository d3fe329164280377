"""Every metric of the gateway. Labels take configured names only, never what a caller can invent.

What each call counts is kept in plain dictionaries and becomes Prometheus's families at a scrape: an increment costs a
look-up, where a child object of the client library costs a lock, checks and three calls.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from gateway.call import Call

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
"""Milliseconds to ten minutes: what language models take."""
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2)
_OWN_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)


class Tally:
    """A counter: labels -> sum."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self._name, self._text, self._labels = f"turnout_{name}", text, labels
        self._sums: dict[tuple[str, ...], float] = {}
        registry.register(self)

    def add(self, labels: tuple[str, ...], amount: float = 1) -> None:
        """Count; `labels`: their values, in order."""
        self._sums[labels] = self._sums.get(labels, 0) + amount

    def describe(self) -> Iterable[Metric]:
        """The name alone, at registration."""
        return [CounterMetricFamily(self._name, self._text, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        """One sample per combination of labels."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in list(self._sums.items()):
            family.add_metric(labels, value)
        return [family]


class Spread:
    """A histogram: labels -> how many values fell into each bucket, and their sum."""

    def __init__(
        self, name: str, text: str, labels: tuple[str, ...], bounds: tuple[float, ...], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labels, self._bounds = f"turnout_{name}", text, labels, bounds
        self._names = [*map(floatToGoString, bounds), "+Inf"]
        self._rows: dict[tuple[str, ...], list[float]] = {}
        """The buckets' own counts, not yet added up; then the sum."""
        registry.register(self)

    def observe(self, labels: tuple[str, ...], value: float) -> None:
        """Count one value."""
        row = self._rows.get(labels)
        if row is None:
            row = self._rows[labels] = [0] * (len(self._names) + 1)
        row[bisect_left(self._bounds, value)] += 1
        row[-1] += value

    def describe(self) -> Iterable[Metric]:
        """The name alone, at registration."""
        return [HistogramMetricFamily(self._name, self._text, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        """Buckets that hold all smaller values too, as Prometheus wants them."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, (*counts, total) in list(self._rows.items()):
            family.add_metric(labels, list(zip(self._names, accumulate(counts), strict=True)), total)
        return [family]


class Metrics:
    """The metrics of one process."""

    def __init__(
        self,
        busy: Callable[[], Mapping[str, int]],
        breakers: Callable[[], Mapping[tuple[str, str], int]] = dict,
        store_up: Callable[[], bool] = lambda: True,
        queued: Callable[[], int] = int,
        dropped: Callable[[], int] = int,
    ) -> None:
        """Read at each scrape: `busy`, upstream -> requests under way; `breakers`, (upstream, model) -> state;
        `store_up`, whether the limits' store answers; `queued` and `dropped`, the ledger's entries."""
        self.registry = CollectorRegistry()
        served = ("route", "model")
        self._requests = self._tally("requests", "Finished calls.", (*served, "upstream", "outcome"))
        self._tokens = self._tally("tokens", "Tokens by kind.", (*served, "kind"))
        self._cost = self._tally("cost_usd", "What calls cost, in US dollars.", served)
        self._attempts = self._tally("attempts", "Upstream calls by result.", ("model", "upstream", "result"))
        self._fallbacks = self._tally("fallbacks", "Calls that moved on.", ("route", "from", "to", "cause"))
        self._exposures = self._tally("experiment_exposures", "Calls by arm.", ("experiment", "arm"))
        self.limit_rejections = self._tally("limit_rejections", "What limits refused.", ("limit",))
        self._seconds = self._spread("request_seconds", "First to last byte of a call.", served, _SECONDS)
        self._first_token = self._spread("time_to_first_token_seconds", "Until the first token.", served, _SECONDS)
        self._per_token = self._spread(
            "time_per_output_token_seconds", "Mean between the tokens of a stream.", served, _TOKEN_SECONDS
        )
        self._overhead = self._spread("overhead_seconds", "The gateway's own time.", ("route",), _OWN_SECONDS)
        self._redis = self._spread("redis_seconds", "Round trips to Redis.", (), _OWN_SECONDS)
        self.reloads = Counter(
            "turnout_config_reloads", "Reloads of the configuration.", ("result",), registry=self.registry
        )
        self._info = Gauge("turnout_config_info", "The configuration in force.", ("digest",), registry=self.registry)
        self.registry.register(
            _Read("in_flight", "Requests under way.", ("upstream",), lambda: {(u,): n for u, n in busy().items()})
        )
        text = "Whether a model is left alone: 0 closed, 1 half-open, 2 open."
        self.registry.register(_Read("breaker_state", text, ("upstream", "model"), breakers))
        text = "Whether the store of the limits answers: 1, else 0."
        self.registry.register(_Read("limit_store_up", text, (), lambda: {(): int(store_up())}))
        self.registry.register(_Read("ledger_queue_depth", "Entries to be written.", (), lambda: {(): queued()}))
        text = "Entries that were lost because the queue was full."
        self.registry.register(_Read("ledger_dropped", text, (), lambda: {(): dropped()}, CounterMetricFamily))

    def _tally(self, name: str, text: str, labels: tuple[str, ...]) -> Tally:
        return Tally(name, text, labels, self.registry)

    def _spread(self, name: str, text: str, labels: tuple[str, ...], bounds: tuple[float, ...]) -> Spread:
        return Spread(name, text, labels, bounds, self.registry)

    def configuration(self, digest: str) -> None:
        """The configuration with this digest is in force."""
        self._info.clear()
        self._info.labels(digest).set(1)

    def limit_rejected(self, limit: str) -> None:
        """A limit with this label (`key_requests`, ...) has refused a call or a model."""
        self.limit_rejections.add((limit,))

    def redis_took(self, seconds: float) -> None:
        """Redis has answered."""
        self._redis.observe((), seconds)

    def observe(self, call: Call, now: float) -> None:
        """Count one finished call."""
        model = upstream = ""
        if call.answered is not None:
            model, upstream = call.answered.model.name, call.answered.model.upstream.name
        elif call.tried:
            model, upstream = call.tried[-1].model, call.tried[-1].upstream
        route = call.plan.route if call.plan is not None else ""
        took = now - call.arrived
        self._requests.add((route, model, upstream, call.outcome))
        self._seconds.observe((route, model), took)
        self._overhead.observe((route,), max(0.0, took - call.waited))
        for tried in call.tried:
            self._attempts.add((tried.model, tried.upstream, tried.cause or "ok"))
        if len(call.tried) > 1:
            self._count_fallbacks(call, route)
        if call.plan is not None and call.plan.split is not None:
            self._exposures.add((call.plan.split.experiment, call.plan.split.arm))
        if call.answered is not None:
            self._count_tokens(call, route, model)

    def _count_tokens(self, call: Call, route: str, model: str) -> None:
        usage, add = call.usage, self._tokens.add
        add((route, model, "prompt"), usage.prompt)
        add((route, model, "cached"), usage.cached)
        add((route, model, "completion"), usage.completion)
        add((route, model, "reasoning"), usage.reasoning)
        if call.cost:
            self._cost.add((route, model), float(call.cost))
        if call.first_token is not None and call.last_token is not None:
            self._first_token.observe((route, model), call.first_token - call.arrived)
            if usage.completion > 1:
                mean = (call.last_token - call.first_token) / (usage.completion - 1)
                self._per_token.observe((route, model), mean)

    def _count_fallbacks(self, call: Call, route: str) -> None:
        for before, after in pairwise(call.tried):
            if before.model != after.model:  # else it was made again, and has not moved on
                self._fallbacks.add((route, before.model, after.model, before.cause))

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


class _Read:
    """A gauge (or a counter) whose values are read where they are, at each scrape."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        read: Callable[[], Mapping[Any, int]],
        family: type[CounterMetricFamily] | type[GaugeMetricFamily] = GaugeMetricFamily,
    ) -> None:
        """`read`: the values of `labels` -> value."""
        self._name, self._text, self._labels, self._read = f"turnout_{name}", text, labels, read
        self._family = family

    def describe(self) -> Iterable[Metric]:
        """No values are read at registration."""
        return [self._family(self._name, self._text, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        """One sample per combination of labels."""
        family = self._family(self._name, self._text, labels=self._labels)
        for labels, value in self._read().items():
            family.add_metric(labels, value)
        return [family]
