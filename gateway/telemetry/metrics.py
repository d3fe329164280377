"""Every metric of the gateway. Labels take configured names only, never what a caller can invent.

What each call counts is kept in an array of numbers (`numbers.py`) and becomes Prometheus's families at a scrape: an
increment costs a look-up, where a child object of the client library costs a lock, checks and three calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import Metric

from gateway import clock
from gateway.call import Call
from gateway.telemetry.families import Level, Readings, Spread, Tally
from gateway.telemetry.numbers import How, Numbers, Scrape
from gateway.telemetry.speculation import Acceptance, Speculation

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
"""Milliseconds to ten minutes: what language models take."""
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2)
ENGINES: tuple[tuple[str, str, How], ...] = (
    ("up", "Whether an engine is ready, as it was last seen: 1, else 0.", "min"),
    ("running", "Requests that an engine works on, whoever sent them.", "max"),
    ("waiting", "Requests that wait in an engine.", "max"),
    ("kv_cache_usage", "Share of an engine's KV cache that is in use.", "max"),
    ("acceptance_length", "Mean tokens of one step with a draft, in the last minute.", "max"),
)
"""Figures of the engines that were looked at in the last ten seconds, and how those of several workers are one."""
UNSEEN: Mapping[str, How] = MappingProxyType({"replica_in_flight": "sum", "replica_breaker": "max", "started": "min"})
_OWN_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)


Family = Tally | Spread | Level | Acceptance


class Figures(NamedTuple):
    """What the operations page is drawn from."""

    rows: Mapping[str, list[dict[str, Any]]]
    """Counter or histogram -> its rows."""
    levels: Mapping[str, Readings]
    """Gauge -> labels -> value."""
    workers: int


def _of(engines: Callable[[], Mapping[str, Readings]], name: str) -> Readings:
    return engines().get(name, {})


class Metrics:
    """The metrics of one process."""

    def __init__(
        self,
        busy: Callable[[], Mapping[str, int]],
        breakers: Callable[[], Mapping[tuple[str, str], int]] = dict,
        store_up: Callable[[], bool] = lambda: True,
        queued: Callable[[], int] = int,
        budgets: Callable[[], Mapping[tuple[str, ...], float]] = dict,
        folder: Path | None = None,
        engines: Callable[[], Mapping[str, Readings]] = dict,
        unseen: Mapping[str, Callable[[], Readings]] = MappingProxyType({}),
    ) -> None:
        """Read at each scrape: `busy`, upstream -> requests under way; `breakers`, (upstream, model) -> state;
        `store_up`, whether the limits' store answers; `queued`, the ledger's entries;
        `budgets`, (kind, name) -> share used; `engines`, figure -> (upstream, replica) -> value. `folder`: where the
        workers of one gateway share their numbers. `unseen`: levels that are for `figures` only."""
        self._numbers = numbers = Numbers(folder)
        served = ("route", "model")
        self._requests = Tally("requests", "Finished calls.", (*served, "upstream", "outcome"), numbers)
        self._tokens = Tally("tokens", "Tokens by kind.", (*served, "kind"), numbers)
        self._cost = Tally("cost_usd", "What calls cost, in US dollars.", served, numbers)
        self._attempts = Tally("attempts", "Upstream calls by result.", ("model", "upstream", "result"), numbers)
        self._fallbacks = Tally("fallbacks", "Calls that moved on.", ("route", "from", "to", "cause"), numbers)
        self._exposures = Tally("experiment_exposures", "Calls by arm.", ("experiment", "arm"), numbers)
        self._rejections = Tally("limit_rejections", "What limits refused.", ("limit",), numbers)
        self._dropped = Tally("ledger_dropped", "Entries that were lost because there was no room.", (), numbers)
        self._reloads = Tally("config_reloads", "Reloads of the configuration.", ("result",), numbers)
        self._speculation = Speculation(numbers)
        self._seconds = Spread("request_seconds", "First to last byte of a call.", served, _SECONDS, numbers)
        self._first_token = Spread("time_to_first_token_seconds", "Until the first token.", served, _SECONDS, numbers)
        self._per_token = Spread(
            "time_per_output_token_seconds", "Mean between the tokens of a stream.", served, _TOKEN_SECONDS, numbers
        )
        self._overhead = Spread("overhead_seconds", "The gateway's own time.", ("route",), _OWN_SECONDS, numbers)
        self._redis = Spread("redis_seconds", "Round trips to Redis.", (), _OWN_SECONDS, numbers)
        self._digest = ""
        self._levels = (
            Level(
                "in_flight", "Requests under way.", ("upstream",), lambda: {(u,): n for u, n in busy().items()}, numbers
            ),
            Level(
                "breaker_state",
                "Whether a model is left alone: 0 closed, 1 half-open, 2 open.",
                ("upstream", "model"),
                lambda: {(u, m): state for (u, m), state in breakers().items()},
                numbers,
                "max",
            ),
            Level(
                "limit_store_up",
                "Whether the store of the limits answers: 1, else 0.",
                (),
                lambda: {(): int(store_up())},
                numbers,
                "min",
            ),
            Level("ledger_queue_depth", "Entries to be written.", (), lambda: {(): queued()}, numbers),
            Level(
                "budget_used_ratio",
                "Share of a budget that is spent or reserved, as the last call saw it.",
                ("scope", "name"),
                budgets,
                numbers,
                "max",
            ),
            Level(
                "config_info", "The configuration in force.", ("digest",), lambda: {(self._digest,): 1}, numbers, "max"
            ),
            *(
                Level(f"engine_{name}", text, ("upstream", "replica"), partial(_of, engines, name), numbers, how)
                for name, text, how in ENGINES
            ),
        )
        self._unseen = tuple(Level(name, "", (), read, numbers, UNSEEN[name]) for name, read in unseen.items())
        self.families: tuple[Family, ...] = (
            *(kept for kept in vars(self).values() if isinstance(kept, Tally | Spread)),
            *self._speculation.families,
            *self._levels,
        )
        self._dropped.add((), 0)

    def configuration(self, digest: str) -> None:
        """The configuration with this digest is in force."""
        self._digest = digest

    def reloaded(self, result: str) -> None:
        """The configuration file was read again: `ok`, `same` or `refused`."""
        self._reloads.add((result,))

    def limit_rejected(self, limit: str) -> None:
        """A limit with this label (`key_requests`, ...) has refused a call or a model."""
        self._rejections.add((limit,))

    def redis_took(self, seconds: float) -> None:
        """Redis has answered."""
        self._redis.observe((), seconds)

    def alarmed(self, model: str, kind: str, what: str, times: int = 1) -> None:
        """Speculation goes wrong; 0 times: it might, and a counter that begins at 0 shows its first step."""
        self._speculation.alarms.add((model, kind, what), times)

    def dropped(self, entries: int = 1) -> None:
        """The ledger had no room for these."""
        self._dropped.add((), entries)

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
            if call.drafted is not None:
                self._speculation.observe(call, call.drafted, now)

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

    def publish(self) -> None:
        """Let the other workers' scrapes see this one's levels."""
        for level in (*self._levels, *self._unseen):
            level.publish()
        self._speculation.acceptance.publish(clock.now())

    async def figures(self) -> Figures:
        """All counters and levels of all workers as plain values. The files are read beside the event loop."""
        self.publish()
        scrape = await asyncio.to_thread(self._numbers.scrape)
        families = {family.name.removeprefix("turnout_"): family for family in self.families}
        rows: dict[str, list[dict[str, Any]]] = {}
        for name, family in families.items():
            if isinstance(family, Spread):
                rows[name] = family.rows(scrape)
            elif isinstance(family, Tally):
                rows[name] = family.rows(scrape, "usd" if name == "cost_usd" else "count")
        gauges: tuple[Level | Acceptance, ...] = (*self._levels, *self._unseen, self._speculation.acceptance)
        levels = {gauge.name.removeprefix("turnout_"): gauge.values(scrape) for gauge in gauges}
        return Figures(rows, levels, scrape.workers)

    def exposition(self) -> bytes:
        """The text format of Prometheus, for all workers."""
        self.publish()
        return generate_latest(_Scraped(self.families, self._numbers.scrape()))


class _Scraped:
    """What Prometheus's client library needs of a registry."""

    def __init__(self, families: Iterable[Family], scrape: Scrape) -> None:
        self._families, self._scrape = families, scrape

    def collect(self) -> Iterable[Metric]:
        """See CollectorRegistry."""
        return [family.family(self._scrape) for family in self._families]
