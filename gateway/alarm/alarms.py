"""The alarms of all models whose engines speculate: fed with finished calls, kept over restarts, heard and acted on.

Each process has its own, so with N workers a change is found after N times as many calls of the gateway.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Protocol, get_args

from structlog.typing import FilteringBoundLogger

from gateway.alarm.alarm import Alarm
from gateway.alarm.baseline import BASELINE_CALLS, USABLE_CALLS, Baseline
from gateway.alarm.baselines import Baselines
from gateway.alarm.observation import Finding, Observation, Settings, What
from gateway.call import Call, Tried
from gateway.changes import Changes
from gateway.clock import Tasks
from gateway.config.runtime import Alarm as Configured
from gateway.config.runtime import Engine, Model, Runtime
from gateway.database import DatabaseDown
from gateway.speculation import Kind

FAILURES = frozenset({"server_error", "embedded"})
"""Causes behind which a grammar may have failed: vLLM ends such a request with an error of its own."""
DOUBT_SECONDS = 5.0
"""After a failure, until an engine that has ended is known to be down: its calls failed for that."""
PAUSES = (0.0, 1.0, 5.0, 30.0)
"""Seconds before each attempt to write to a database that is down."""
BY = "alarm"
WEIGHTS = ("config.json", "*.safetensors", "*.safetensors.index.json")

Document = dict[str, Any]


@dataclass(slots=True)
class _Watched:
    """One model."""

    name: str
    checkpoint: str
    """Tells one checkpoint, and one way to speculate on it, from another."""
    settings: Configured
    alarm: Alarm
    found: dict[tuple[str, str], tuple[Finding, float]] = field(default_factory=dict)
    """(kind, what) -> what is wrong, and since when (seconds since 1970)."""


class Acting(Protocol):
    """What the alarm does (`overrides.Overrides`); both raise DatabaseDown."""

    def record(self, by: str, action: str, target: str, detail: Document) -> Awaitable[None]: ...

    def move_traffic(self, model: str, kind: str, reason: str | None, by: str) -> Awaitable[None]: ...


class Alarms:
    """`observe` is for finished calls. What is found is logged, counted, audited and, if the file says so, acted on."""

    def __init__(
        self,
        tasks: Tasks,
        log: FilteringBoundLogger,
        overrides: Acting,
        baselines: Baselines,
        counted: Callable[[str, str, str, int], None],
        healthy: Callable[[Model], bool],
    ) -> None:
        """`overrides` makes changes at run time (`overrides.Overrides`); `counted` gets (model, kind, what, 1) of each
        finding, and 0 of those that may come; `healthy`: nothing speaks against a model's engine."""
        self._tasks, self._log, self._overrides, self._baselines = tasks, log, overrides, baselines
        self._counted, self._healthy = counted, healthy
        self._begun = False
        self._watched: Mapping[str, _Watched] = {}
        self._moved: Mapping[str, Mapping[str, str]] = {}

    def begin(self) -> None:
        """There is an event loop: find the baselines that are kept."""
        self._begun = True
        for watched in self._watched.values():
            self._tasks.spawn(self._recall(watched))

    def configure(self, runtime: Runtime, changes: Changes) -> None:
        """This configuration is in force. Models whose checkpoint and settings are the same keep their alarm; calls
        that are taken back are watched anew."""
        watched = {}
        for model in runtime.models.values():
            engine = model.upstream.engine
            if engine is not None and engine.speculative is not None and engine.alarm.action != "off":
                watched[model.name] = self._of(model, engine)
        self._watched = watched
        for name, kinds in self._moved.items():
            for kind in kinds.keys() - changes.moved_traffic.get(name, {}).keys():
                self._anew(name, kind)
        self._moved = changes.moved_traffic

    def _of(self, model: Model, engine: Engine) -> _Watched:
        before, checkpoint = self._watched.get(model.name), identity(engine)
        if before is not None and (before.checkpoint, before.settings) == (checkpoint, engine.alarm):
            return before
        watched = _Watched(model.name, checkpoint, engine.alarm, Alarm(Settings(engine.alarm.drift)))
        for kind, what in product(get_args(Kind), get_args(What)):
            self._counted(model.name, kind, what, 0)
        if self._begun:
            self._tasks.spawn(self._recall(watched))
        return watched

    async def _recall(self, watched: _Watched) -> None:
        """Go on with the baselines that are kept."""
        known = await self._baselines.of(watched.name, watched.checkpoint)
        if known:
            watched.alarm = Alarm(Settings(watched.settings.drift), known)

    def _anew(self, name: str, kind: str) -> None:
        if (watched := self._watched.get(name)) is not None:
            watched.alarm.reset(kind)
            watched.found = {key: value for key, value in watched.found.items() if key[0] != kind}

    # -- calls

    def observe(self, call: Call) -> None:
        """A call has ended."""
        for tried in call.tried:
            watched = self._watched.get(tried.model)
            if watched is None:
                continue
            if call.answered is not None and tried is call.tried[-1]:
                if call.drafted is not None or call.governed is not None:
                    self._take(watched, _seen(call, watched.settings.stall_seconds))
            elif tried.cause in FAILURES and (call.body.offers_tools or call.body.wants_json):
                self._tasks.spawn(self._doubt(watched, call, tried))

    async def _doubt(self, watched: _Watched, call: Call, tried: Tried) -> None:
        """A failure counts against the grammar only if the engine itself is well."""
        kind = "tool" if call.body.offers_tools else "json"
        model = call.runtime.models[tried.model]
        del call, tried
        await asyncio.sleep(DOUBT_SECONDS)
        if self._healthy(model):
            self._take(watched, Observation(kind, rejected=True))

    def _take(self, watched: _Watched, seen: Observation) -> None:
        before = _baseline(watched, seen.kind)
        for finding in watched.alarm.observe(seen):
            self._heard(watched, finding)
        now = _baseline(watched, seen.kind)
        if now is not before and now is not None and now.calls in (USABLE_CALLS, BASELINE_CALLS):
            self._tasks.spawn(self._keep(watched, now))

    async def _keep(self, watched: _Watched, baseline: Baseline) -> None:
        """Keep it, unless another process was first: then that one's holds."""
        others = await self._baselines.keep(watched.name, watched.checkpoint, baseline)
        if others is not None:
            rest = [b for b in watched.alarm.baselines() if b.kind != baseline.kind]
            watched.alarm = Alarm(Settings(watched.settings.drift), [*rest, others])

    def _heard(self, watched: _Watched, finding: Finding) -> None:
        key, name = (finding.kind, finding.what), watched.name
        fields = {"model": name, "kind": finding.kind, "what": finding.what, "reason": finding.text}
        if finding.over:
            watched.found.pop(key, None)
            self._log.info("speculation is well again", **fields)
            self._tasks.spawn(self._written(lambda: self._overrides.record(BY, "alarm.over", name, fields)))
            return
        watched.found[key] = (finding, time.time())
        self._counted(name, finding.kind, finding.what, 1)
        self._log.warning("speculation goes wrong", **fields, action=watched.settings.action)
        self._tasks.spawn(self._written(lambda: self._overrides.record(BY, "alarm.found", name, fields)))
        if watched.settings.action == "move" and finding.kind in ("tool", "json"):
            move = self._overrides.move_traffic
            self._tasks.spawn(self._written(lambda: move(name, finding.kind, finding.text, BY)))

    async def _written(self, write: Callable[[], Awaitable[None]]) -> None:
        """To the database, which may be down for a while."""
        why = ""
        for pause in PAUSES:
            await asyncio.sleep(pause)
            try:
                await write()
            except DatabaseDown as down:
                why = str(down)
            else:
                return
        self._log.error("the alarm's finding cannot be written: its action was not taken", reason=why)

    # -- for pages

    def documents(self) -> list[Document]:
        """How each model stands, in this process (`docs/operations/admin-api.md`)."""
        return [_document(watched) for watched in self._watched.values()]


def identity(engine: Engine) -> str:
    """Sixteen hex digits: names, sizes and times of a checkpoint's files, and how it is speculated on."""
    files = [file for pattern in WEIGHTS for file in sorted(engine.checkpoint.glob(pattern))]
    parts: list[Any] = [dict(engine.speculative or {}), str(engine.args.get("quantization", ""))]
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        parts.append((file.name, status.st_size, status.st_mtime_ns))
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _baseline(watched: _Watched, kind: str) -> Baseline | None:
    return next((b for b in watched.alarm.baselines() if b.kind == kind), None)


def _seen(call: Call, stall_seconds: float) -> Observation:
    """What an answered call tells."""
    drafted, governed = call.drafted, call.governed
    stalled = governed.pause > stall_seconds if governed is not None and governed.tool and call.body.stream else None
    rejected = governed.broken if governed is not None else None
    if drafted is None:
        return Observation(call.kind, stalled=stalled, rejected=rejected)
    figures = (drafted.steps, drafted.draft_tokens, drafted.accepted, drafted.histogram)
    return Observation(call.kind, *figures, stalled, rejected)


def _document(watched: _Watched) -> Document:
    kinds = []
    for state in watched.alarm.state():
        baseline, found = state.baseline, watched.found.items()
        length = 1 + baseline.accepted / baseline.steps if baseline.steps else None
        kinds.append(
            {
                "kind": state.kind,
                "calls": state.calls,
                "baseline": {
                    "calls": baseline.calls,
                    "final": baseline.final,
                    "rate": baseline.rate,
                    "acceptance_length": length,
                    "per_position": list(baseline.per_position),
                },
                "recent": state.recent,
                "evidence": state.evidence,
                "findings": [
                    {"what": finding.what, "text": finding.text, "at": at}
                    for (kind, _), (finding, at) in found
                    if kind == state.kind
                ],
            }
        )
    return {"model": watched.name, "action": watched.settings.action, "checkpoint": watched.checkpoint, "kinds": kinds}
