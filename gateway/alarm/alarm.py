"""The alarm of one model: what its calls tell goes in, what has gone wrong comes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from gateway.alarm.baseline import Baseline, sample
from gateway.alarm.observation import Finding, Observation, Settings, What
from gateway.alarm.watch import Watch

COLLAPSE = 0.25
"""Share of the baseline's acceptance below which a fall is called a collapse."""
FLOOR = 0.1
"""First draft tokens (without a histogram: any) of which less is accepted were not worth drafting on any engine."""
FLAWED = 0.01
"""Share of calls that may stall, or break their grammar."""
SHOWN = 50
"""Calls whose level the state shows."""

LOSS, FIRST, STALLS, REJECTIONS = "acceptance", "first position", "stalls", "rejections"
ACCEPTANCE = (LOSS, FIRST)


class _Words(NamedTuple):
    bad: str
    good: str


WORDS: Mapping[str, _Words] = MappingProxyType(
    {
        LOSS: _Words(
            "{kind} answers: {recent} of the draft tokens are accepted, {baseline} were at first; this began about "
            "{calls} calls ago",
            "{kind} answers: {recent} of the draft tokens are accepted again, {baseline} were at first",
        ),
        FIRST: _Words(
            "{kind} answers: the main model accepts {recent} of the first draft tokens, below {baseline} speculation "
            "costs more than it saves; this began about {calls} calls ago: look whether the checkpoint's draft "
            "weights are whole and belong to it",
            "{kind} answers: the main model accepts {recent} of the first draft tokens again",
        ),
        STALLS: _Words(
            "{kind} answers: {recent} of the calls stall inside tool arguments, {baseline} are bearable; this began "
            "about {calls} calls ago",
            "{kind} answers: calls no longer stall inside tool arguments ({recent} of the last {calls} did)",
        ),
        REJECTIONS: _Words(
            "{kind} answers: {recent} of the calls break their grammar, {baseline} are bearable; this began about "
            "{calls} calls ago",
            "{kind} answers: calls no longer break their grammar ({recent} of the last {calls} did)",
        ),
    }
)


class KindState(Struct, frozen=True):
    """One kind of answer, for pages."""

    kind: str
    calls: int
    """Observed so far, by this process."""
    baseline: Baseline
    recent: float | None
    """Acceptance over the last SHOWN calls, 0 to 1; None: no call yet."""
    evidence: dict[str, float]
    """Figure under watch -> 0 (well) to 1 (alarm), on a logarithmic scale."""
    down: tuple[str, ...]
    """What is wrong now."""


class _Kind:
    """Everything of one kind of answer."""

    __slots__ = ("baseline", "calls", "watches")

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.calls = 0
        self.watches = {name: Watch() for name in WORDS}

    @property
    def down(self) -> tuple[str, ...]:
        """What is wrong, each once."""
        return tuple(dict.fromkeys(w.what for w in self.watches.values() if w.what is not None))

    def state(self) -> KindState:
        evidence = {name: watch.evidence for name, watch in self.watches.items()}
        recent = self.watches[LOSS].level(SHOWN)
        return KindState(self.baseline.kind, self.calls, self.baseline, recent, evidence, self.down)


class Alarm:
    """Watches one model's acceptance, stalls and rejections, for each kind of answer on its own.

    Each finding is told once, and once more (`over`) when it has ended. Nothing here waits or fails; memory is
    bounded; a call costs microseconds.
    """

    def __init__(self, settings: Settings, baselines: Iterable[Baseline] = ()) -> None:
        """`baselines` are those of the checkpoint being served; kinds without one learn theirs from their calls."""
        self._settings = settings
        self._kinds = {baseline.kind: _Kind(baseline) for baseline in baselines}

    def observe(self, seen: Observation) -> tuple[Finding, ...]:
        """Takes one finished call in; what it shows to have changed, mostly nothing."""
        kind = self._kinds.get(seen.kind)
        if kind is None:
            kind = self._kinds[seen.kind] = _Kind(Baseline(seen.kind))
        kind.calls += 1
        found: list[Finding] = []
        if seen.draft_tokens > 0:
            self._acceptance(kind, seen, found)
        for name, flaw in ((STALLS, seen.stalled), (REJECTIONS, seen.rejected)):
            if flaw is not None and kind.watches[name].add(1.0 - flaw, 1.0, 1 - FLAWED):
                _turn(kind, name, found)
        return tuple(found)

    def baselines(self) -> tuple[Baseline, ...]:
        """To be kept, those that are not `final` too: given back, they go on learning."""
        return tuple(kind.baseline for kind in self._kinds.values() if kind.baseline.calls)

    def state(self) -> tuple[KindState, ...]:
        """How things stand, by kind."""
        return tuple(self._kinds[name].state() for name in sorted(self._kinds))

    def reset(self, kind: str | None = None, *, forget: bool = False) -> None:
        """Ends all findings (of this kind) and begins to watch anew; `forget`: also learns the baseline anew."""
        for name, each in self._kinds.items():
            if kind is None or name == kind:
                for watch in each.watches.values():
                    watch.clear()
                if forget:
                    each.baseline = Baseline(name)

    def _acceptance(self, kind: _Kind, seen: Observation, found: list[Finding]) -> None:
        """Holds the call against the baseline and the floor, then learns from it unless something is wrong."""
        loss, first = kind.watches[LOSS], kind.watches[FIRST]
        rate, weight = sample(seen.accepted, seen.draft_tokens)
        if not kind.baseline.usable:
            loss.note(rate, weight)
        elif loss.add(rate, weight, kind.baseline.bound(self._settings.drift)):
            _turn(kind, LOSS, found)
        steps = sum(seen.histogram)
        if steps > 0:
            rate, weight = sample(steps - seen.histogram[0], steps)
        if first.add(rate, weight, FLOOR):
            _turn(kind, FIRST, found)
        if not kind.baseline.final:
            _learn(kind, seen)


def _learn(kind: _Kind, seen: Observation) -> None:
    """A checkpoint that was broken from its first call on is no measure: what it taught is dropped."""
    if kind.watches[LOSS].what is not None:
        return
    broken = kind.watches[FIRST].what is not None
    kind.baseline = Baseline(kind.baseline.kind) if broken else kind.baseline.plus(seen)


def _turn(kind: _Kind, name: str, found: list[Finding]) -> None:
    """A watch changed sides: a finding, unless another watch tells the same already, or still."""
    watch = kind.watches[name]
    before = kind.down
    over = watch.what is not None
    calls = watch.since()
    level = watch.level(calls) or 0.0
    what = watch.what or _what(name, level, kind.baseline)
    watch.turn(None if over else what)
    if (what in before) == (what in kind.down):
        return
    flaw = name not in ACCEPTANCE
    expected = kind.baseline.rate if name == LOSS else FLAWED if flaw else FLOOR
    recent = 1 - level if flaw else level
    words = WORDS[name].good if over else WORDS[name].bad
    text = words.format(kind=kind.baseline.kind, recent=f"{recent:.1%}", baseline=f"{expected:.1%}", calls=calls)
    found.append(Finding(what, kind.baseline.kind, expected, recent, calls, text, over))


def _what(name: str, level: float, baseline: Baseline) -> What:
    """What a fall is called."""
    if name == LOSS:
        return "collapse" if level < COLLAPSE * baseline.rate else "drift"
    return "collapse" if name == FIRST else "stalls" if name == STALLS else "rejections"
