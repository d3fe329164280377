"""One snapshot of everything that the operations page shows: what is configured, in force, under way and wrong."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Protocol

from gateway import __version__
from gateway.changes import Changes
from gateway.clock import Tasks
from gateway.config.reload import Reloads
from gateway.config.runtime import Model, Route, Runtime, Target, Upstream
from gateway.ops.totals import Books, Totals

WATCH_SECONDS = 10.0
"""For so long after a snapshot engines are looked at."""
Labels = tuple[str, ...]
Document = dict[str, Any]

_STATES = ("closed", "half-open", "open")
_COUNTERS = MappingProxyType(
    {
        "requests": "requests",
        "tokens": "tokens",
        "cost": "cost_usd",
        "attempts": "attempts",
        "fallbacks": "fallbacks",
        "rejections": "limit_rejections",
        "latency": "request_seconds",
        "first_token": "time_to_first_token_seconds",
        "overhead": "overhead_seconds",
    }
)
"""Name in the snapshot -> metric."""


class Figures(Protocol):
    """The counters and levels of all workers (`telemetry.metrics.Figures`)."""

    @property
    def rows(self) -> Mapping[str, list[Document]]: ...

    @property
    def levels(self) -> Mapping[str, Mapping[Labels, float]]: ...

    @property
    def workers(self) -> int: ...


class Changing(Protocol):
    """The changes at run time (`overrides.Overrides`)."""

    @property
    def changes(self) -> Changes: ...

    @property
    def up(self) -> bool:
        """The database answers."""


class Catalog(Protocol):
    """Which of a model's ids are in use."""

    def id_of(self, model: Model) -> str: ...


class Upstreams(Protocol):
    """The upstreams (`upstream.fleet.Fleet`)."""

    @property
    def catalog(self) -> Catalog: ...

    def why_not(self, model: Model) -> str | None:
        """Why a model should not be asked first now."""

    def engine(self, target: Target) -> Document | None:
        """How an engine is; None: nobody has looked lately."""

    def watch(self, seconds: float) -> None:
        """Somebody wants to know how the engines are, for so long."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a snapshot comes from (`wiring.py` joins them)."""

    runtimes: Callable[[], tuple[Runtime, Runtime]]
    """The configuration in force, and as its file says."""
    overrides: Changing
    reloads: Reloads
    ledger: Books
    figures: Callable[[], Awaitable[Figures]]
    near: Callable[[], list[Document]]
    """The limits near their edge."""
    alarm: Callable[[], list[Document]]
    """How speculation goes, by model (`alarm`)."""
    unusable: Callable[[], Awaitable[dict[str, dict[str, str]]]]
    fleet: Upstreams
    tasks: Tasks
    redis: Callable[[], bool | None]
    """Whether it answers; None: there is none."""


class State:
    """Makes snapshots. The format is that of `docs/operations/admin-api.md`; names are stable, keys are only added."""

    def __init__(self, sources: Sources) -> None:
        self._of = sources
        self._totals = Totals(sources.ledger, sources.tasks)

    async def snapshot(self) -> Document:
        """Everything, now. Waits for no database, and for an engine's health only at the first time."""
        of = self._of
        of.fleet.watch(WATCH_SECONDS)
        unusable, figures, totals = await of.unusable(), await of.figures(), await self._totals.recent()
        (runtime, written), changes = of.runtimes(), of.overrides.changes
        started = figures.levels["started"].get((), time.time())
        return {
            "at": time.time(),
            "version": __version__,
            "uptime": round(time.time() - started, 1),
            "workers": figures.workers,
            "config": self._config(written),
            "health": self._health(runtime, unusable, figures),
            "counters": {name: figures.rows[metric] for name, metric in _COUNTERS.items()},
            **totals,
            "models": [self._model(model, changes) for model in written.models.values()],
            "upstreams": [self._upstream(upstream, changes, figures) for upstream in written.upstreams.values()],
            "routes": [_route(route) for route in runtime.routes.values()],
            "speculation": of.alarm(),
            "acceptance": _acceptance(figures),
            "limits": of.near(),
            "experiments": list(_experiments(runtime, changes, figures)),
            "overrides": changes.documents(written),
        }

    def _config(self, written: Runtime) -> Document:
        reloads = self._of.reloads
        return {
            "digest": written.digest,
            "file": str(written.file),
            "loaded_at": reloads.loaded_at,
            "notices": [asdict(notice) for notice in written.notices],
            "refused": reloads.refused,
        }

    def _health(self, runtime: Runtime, unusable: Mapping[str, Mapping[str, str]], figures: Figures) -> Document:
        up = self._of.redis()
        dropped = sum(row["count"] for row in figures.rows["ledger_dropped"])
        queued = figures.levels["ledger_queue_depth"].get((), 0)
        return {
            "ready": not unusable,
            "unusable": unusable,
            "redis": None if up is None else _up(up),
            "on_redis_failure": runtime.limits.on_redis_failure,
            "database": _up(self._of.overrides.up),
            "ledger": {"queued": int(queued), "dropped": int(dropped)},
        }

    def _model(self, model: Model, changes: Changes) -> Document:
        closed = changes.closed.get(model.name)
        return {
            "name": model.name,
            "upstream": model.upstream.name,
            "id": self._of.fleet.catalog.id_of(model),
            "context": model.context,
            "price": None if model.price is None else _plain(asdict(model.price)),
            "moved": dict(changes.moved_traffic.get(model.name, {})),
            "closed": closed and {"at": closed.at, "by": closed.by, "reason": closed.value["reason"]},
            "why_not": model.upstream.off or self._of.fleet.why_not(model),
        }

    def _upstream(self, upstream: Upstream, changes: Changes, figures: Figures) -> Document:
        busy, breakers = figures.levels["replica_in_flight"], _breakers(upstream.name, figures)
        replicas = [
            {
                "index": index,
                "address": _address(target),
                "breaker": breakers[str(index)],
                "in_flight": int(busy.get((upstream.name, str(index)), 0)),
                "drained": changes.is_drained(upstream.name, target),
                "engine": self._of.fleet.engine(target) if upstream.engine is not None else None,
            }
            for index, target in enumerate(upstream.targets)
        ]
        restart = changes.of("engine").get(upstream.name)
        return {
            "name": upstream.name,
            "kind": "service" if upstream.engine is None else "engine",
            "off": upstream.off,
            "restarting": restart and {"at": restart.value["asked"] / 1000, "state": restart.value["state"]},
            "replicas": replicas,
        }


def _breakers(upstream: str, figures: Figures) -> Mapping[str, dict[str, str]]:
    """Replica -> model -> the worst of the workers' breakers."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for (owner, replica, model), state in figures.levels["replica_breaker"].items():
        if owner == upstream:
            found[replica][model] = _STATES[int(state)]
    return found


def _acceptance(figures: Figures) -> list[Document]:
    """Sums since the start by model, task, arm and kind, and the acceptance length of calls lately ended."""
    lengths = figures.levels["spec_decode_acceptance_length"]
    names = ("drafts", "draft_tokens", "accepted_tokens")
    found: dict[tuple[str, ...], Document] = {}
    for name in names:
        for row in figures.rows[f"spec_decode_{name}"]:
            labels = tuple(row[label] for label in ("model", "task", "arm", "kind"))
            labelled = {label: row[label] for label in ("model", "task", "arm", "kind")}
            found.setdefault(labels, labelled)[name] = int(row["count"])
    return [{**row, "acceptance_length": lengths.get(labels)} for labels, row in sorted(found.items())]


def _route(route: Route) -> Document:
    rules = [{"name": rule.name, "to": rule.to} for rule in route.rules]
    return {
        "name": route.name,
        "default": route.default,
        "rules": rules,
        "fallback": list(route.fallback),
        "sticky": route.sticky,
    }


def _experiments(runtime: Runtime, changes: Changes, figures: Figures) -> Iterator[Document]:
    exposed: dict[str, dict[str, int]] = defaultdict(dict)
    for row in figures.rows["experiment_exposures"]:
        exposed[row["experiment"]][row["arm"]] = int(row["count"])
    without = {row.name for row, _ in changes.idle(runtime) if row.kind == "experiment"}
    for experiment in runtime.experiments.values():
        yield {
            "name": experiment.name,
            "route": experiment.route,
            "rules": list(experiment.rules),
            "unit": experiment.unit,
            "arms": dict(experiment.arms),
            "overridden": experiment.name in changes.of("experiment").keys() - without,
            "exposures": exposed[experiment.name],
        }


def _address(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{host}:{target.port}"


def _up(up: bool) -> str:
    return "up" if up else "down"


def _plain(value: Any) -> Any:
    """A price for JSON, without what it does not say."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    return float(value) if isinstance(value, Decimal) else value
