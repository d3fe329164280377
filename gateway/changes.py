"""What is changed at run time, as values: closed models, moved traffic, drained and moved replicas, other weights.

Pure: `overrides.py` keeps the changes in the database and makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from gateway.config.runtime import Experiment, Model, Runtime, Target, Upstream

Kind = Literal["model", "traffic", "upstream", "engine", "experiment"]
Value = dict[str, Any]
ASKED = "asked for"
"""The state of a rolling restart that nobody has begun."""
FAILED = "failed"
"""How the state of one begins that did not end well."""


class Override(NamedTuple):
    """One change as it is kept. `value`, by kind:

    model       {"reason": why it is closed}
    traffic     of a model: {"moved": {"tool" or "json": why such calls go to the next model}}
    upstream    {"drained": [address], "moved": {address: port}}: replicas without new calls, and those elsewhere
    engine      of an upstream: {"asked": when a rolling restart was asked for, in ms, "state": how far it is}
    experiment  {"arms": {arm: weight}}

    Addresses are those of the file.
    """

    kind: Kind
    name: str
    value: Value
    at: float
    """Seconds since 1970."""
    by: str

    def __str__(self) -> str:
        since = f"(since {datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M} UTC)"
        return f"{self.kind} {self.name}: {'; '.join(self._said())} {since}"

    def _said(self) -> Iterator[str]:
        value = self.value
        if self.kind == "model":
            yield f"closed{': ' * bool(value['reason'])}{value['reason']}"
        elif self.kind == "traffic":
            yield from (f"{kind} calls go to the next model: {why}" for kind, why in value["moved"].items())
        elif self.kind == "engine":
            yield f"rolling restart: {value['state']}"
        elif self.kind == "experiment":
            yield f"arms {', '.join(f'{arm} {w:g}' for arm, w in value['arms'].items())}"
        elif self.kind == "upstream":
            if drained := value.get("drained"):
                yield f"drained: {', '.join(drained)}"
            yield from (f"{address} is served on port {port}" for address, port in value.get("moved", {}).items())


@dataclass(frozen=True)
class Changes:
    """All changes in force at one moment."""

    rows: tuple[Override, ...] = ()

    def of(self, kind: Kind) -> Mapping[str, Override]:
        """Name -> change."""
        return {row.name: row for row in self.rows if row.kind == kind}

    @cached_property
    def closed(self) -> Mapping[str, Override]:
        """The closed models."""
        return MappingProxyType(self.of("model"))

    @cached_property
    def moved_traffic(self) -> Mapping[str, Mapping[str, str]]:
        """Model -> kind of call -> why such calls go to the next model."""
        return MappingProxyType({name: row.value["moved"] for name, row in self.of("traffic").items()})

    @cached_property
    def _replicas(self) -> Mapping[str, Value]:
        return {name: row.value for name, row in self.of("upstream").items()}

    def why_never(self, model: Model) -> str | None:
        """Why a model must not be tried; None: it may."""
        row = self.closed.get(model.name)
        if row is None:
            return None
        reason = row.value["reason"]
        return f"closed by its operator: {reason}" if reason else "closed by its operator"

    def is_drained(self, upstream: str, target: Target) -> bool:
        """One replica, where it listens now, gets no new calls."""
        value = self._replicas.get(upstream, {})
        moved = {port: address for address, port in value.get("moved", {}).items()}
        return moved.get(target.port, target.url) in value.get("drained", ())

    def placed(self, runtime: Runtime) -> Runtime:
        """The configuration with its replicas where they listen now."""
        return self._with(runtime, self._placed) if self.rows else runtime

    def applied(self, runtime: Runtime) -> Runtime:
        """The configuration with replicas where they listen now, without drained ones, and the arms of experiments
        replaced."""
        if not self.rows:
            return runtime
        experiments = dict(runtime.experiments)
        for name, row in self.of("experiment").items():
            if name in experiments and unfit(row.value["arms"], runtime) is None:
                experiments[name] = _split(experiments[name], row.value["arms"])
        left = self._with(runtime, lambda upstream: self._left(self._placed(upstream)))
        return replace(left, experiments=MappingProxyType(experiments))

    def _with(self, runtime: Runtime, changed: Callable[[Upstream], Upstream]) -> Runtime:
        upstreams = {name: changed(upstream) for name, upstream in runtime.upstreams.items()}
        models = {n: replace(m, upstream=upstreams.get(m.upstream.name, m.upstream)) for n, m in runtime.models.items()}
        return replace(runtime, upstreams=MappingProxyType(upstreams), models=MappingProxyType(models))

    def _placed(self, upstream: Upstream) -> Upstream:
        ports = self._replicas.get(upstream.name, {}).get("moved", {})
        if not ports:
            return upstream
        placed = (replace(t, port=ports[t.url]) if t.url in ports else t for t in upstream.targets)
        return replace(upstream, targets=tuple(placed))

    def _left(self, upstream: Upstream) -> Upstream:
        left = tuple(target for target in upstream.targets if not self.is_drained(upstream.name, target))
        if left == upstream.targets:
            return upstream
        return replace(upstream, targets=left, off=upstream.off or (None if left else "all its replicas are drained"))

    def idle(self, runtime: Runtime) -> Iterator[tuple[Override, str]]:
        """Changes that a file leaves without effect, and why."""
        named: Mapping[str, Container[str]] = {
            "model": runtime.models,
            "traffic": runtime.models,
            "upstream": runtime.upstreams,
            "engine": [name for name, upstream in runtime.upstreams.items() if upstream.engine is not None],
            "experiment": runtime.experiments,
        }
        words = {"traffic": "model", "engine": "upstream with an engine"}
        for row in self.rows:
            if row.name not in named[row.kind]:
                yield row, f"the file has no {words.get(row.kind, row.kind)} '{row.name}'"
            elif row.kind == "experiment" and (why := unfit(row.value["arms"], runtime)) is not None:
                yield row, why
            elif row.kind == "upstream":
                known = {target.url for target in runtime.upstreams[row.name].targets}
                if known.isdisjoint([*row.value.get("drained", ()), *row.value.get("moved", ())]):
                    yield row, "the file has none of these addresses"

    def documents(self, runtime: Runtime) -> list[dict[str, Any]]:
        """For programs: each change, and why it has no effect where it has none."""
        idle = {(row.kind, row.name): why for row, why in self.idle(runtime)}
        return [{**row._asdict(), "without_effect": idle.get((row.kind, row.name))} for row in self.rows]


def unfit(arms: Mapping[str, float], runtime: Runtime) -> str | None:
    """Why weights cannot be used with a configuration; None: they can."""
    unknown = [arm for arm in arms if arm not in runtime.models]
    if unknown:
        return f"no model is called '{unknown[0][:100]}'"
    return None if any(weight > 0 for weight in arms.values()) else "all weights are 0, so no arm could ever be chosen"


def _split(experiment: Experiment, arms: Mapping[str, float]) -> Experiment:
    """Arms keep the file's order, so that only the units between old and new bounds move."""
    order = [*(arm for arm in experiment.arms if arm in arms), *(arm for arm in arms if arm not in experiment.arms)]
    return replace(experiment, arms=MappingProxyType({arm: float(arms[arm]) for arm in order}))
