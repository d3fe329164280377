"""Circuit breakers: who keeps failing is left alone for a while, then probed by one call at a time.

closed --(failures in a row, or a stated wait)--> open --(its time is over)--> half-open --(success)--> closed
                                                    ^------------(failure)---------'
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gateway import clock
from gateway.config.runtime import Model, Target
from gateway.errors import CAUSES, UpstreamFailure
from gateway.upstream import classify

T = TypeVar("T")

AT_ONCE = frozenset({"connect"})
"""Causes that put one of several addresses out at once: the others take its calls."""
LONGEST_REST = 60.0
"""Seconds. A longer Retry-After is not believed for longer than this: one call then asks again."""

CLOSED, HALF_OPEN, OPEN = 0, 1, 2


@dataclass(slots=True)
class Limits:
    """What `gateway.breaker` says; a reload changes it in place."""

    failures: int = 5
    open_seconds: float = 10.0


class Breaker:
    """One breaker. It advises (`ready`) and learns (`through`); a call that has nowhere else to go may pass it open."""

    __slots__ = ("_broken", "_failures", "_limits", "_now", "_opened", "_probing", "_reason", "_until", "at_once")

    def __init__(
        self, limits: Limits, now: Callable[[], float] = clock.now, at_once: frozenset[str] = frozenset()
    ) -> None:
        self._limits = limits
        self._now = now
        self.at_once = at_once
        """Causes that open it without waiting for more of them."""
        self._failures = 0
        """In a row."""
        self._broken = 0
        """Committed answers in a row that broke off."""
        self._opened = 0.0
        self._until: float | None = None
        """When its open time is over; None: closed."""
        self._reason = ""
        self._probing = False

    @property
    def ready(self) -> bool:
        """Calls may come: it is closed, or half-open without a probe under way."""
        return self._until is None or (self._until <= self._now() and not self._probing)

    @property
    def until(self) -> float:
        """When it can be asked again (by the clock); 0 while it is closed."""
        return self._until or 0.0

    @property
    def state(self) -> int:
        """CLOSED, HALF_OPEN or OPEN."""
        if self._until is None:
            return CLOSED
        return OPEN if self._until > self._now() else HALF_OPEN

    @property
    def why_not(self) -> str | None:
        """Why calls should go elsewhere now; None: they need not."""
        if self.ready or self._until is None:
            return None
        left = math.ceil(self._until - self._now())
        return f"{self._reason} for {left} s" if left > 0 else "its breaker is half-open and being probed"

    async def through(self, asking: Awaitable[T]) -> T:
        """Await one call and learn from its end. Cancelled calls and the gateway's own faults teach nothing."""
        started = self._now()
        probe = self._until is not None and self._until <= started and not self._probing
        if probe:
            self._probing = True
        try:
            answer = await asking
        except UpstreamFailure as failure:
            self._failed(failure)
            raise
        finally:
            if probe:
                self._probing = False
        if self._failures or self._until is not None:
            self._succeeded(started)
        return answer

    def ended(self, failure: UpstreamFailure | None) -> None:
        """Learn how a committed answer ended (`call.Answer.ended`). That one begins well says nothing about its end, so
        these have a count of their own."""
        if failure is None:
            self._broken = 0
            return
        if failure.cause == "embedded":
            failure = classify.embedded(failure)
        if CAUSES[failure.cause].fault:
            self._broken += 1
            if self._broken >= self._limits.failures and self.state != OPEN:
                self._open(self._now(), self._limits.open_seconds, "its breaker is open (answers broke off)")

    def _succeeded(self, started: float) -> None:
        if self._until is None or started >= self._opened:  # what began before the opening says nothing new
            self._failures, self._until = 0, None

    def _failed(self, failure: UpstreamFailure) -> None:
        now, fault = self._now(), CAUSES[failure.cause].fault
        if fault:
            self._failures += 1
            worn = self._failures >= self._limits.failures or failure.cause in self.at_once
            if self.state == HALF_OPEN or (self.state == CLOSED and worn):
                self._open(now, self._limits.open_seconds, "its breaker is open")
        if failure.retry_after and (fault or failure.cause == "rate_limit"):
            self._open(now, min(failure.retry_after, LONGEST_REST), "its upstream has asked for a pause")

    def _open(self, now: float, seconds: float, reason: str) -> None:
        if now + seconds > self.until:
            self._opened, self._until, self._reason = now, now + seconds, reason


class Group:
    """The breakers of one model, in the order of its upstream's addresses: the model is as well as the best of them."""

    __slots__ = ("_only", "breakers")

    def __init__(self, breakers: Iterable[Breaker]) -> None:
        self.breakers = tuple(breakers)
        self._only = self.breakers[0] if len(self.breakers) == 1 else None

    @property
    def ready(self) -> bool:
        """Some address may be called."""
        return self._only.ready if self._only is not None else any(b.ready for b in self.breakers)

    @property
    def until(self) -> float:
        """When the first address can be asked again; 0 while one is closed."""
        return min((b.until for b in self.breakers), default=0.0)

    @property
    def state(self) -> int:
        """The best one's."""
        return min((b.state for b in self.breakers), default=OPEN)

    @property
    def why_not(self) -> str | None:
        """Why calls should go elsewhere now; None: they need not."""
        if self.ready:
            return None
        soonest = min(self.breakers, key=lambda b: b.until, default=None)
        return soonest.why_not if soonest is not None else None


class Breakers:
    """The breakers of all configured models, one for each address of their upstreams; they outlive a reload."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._limits = Limits()
        self._all: dict[tuple[str, str, Target], Breaker] = {}
        self._groups: dict[tuple[str, str], Group] = {}

    def configure(self, models: Sequence[Model], failures: int, open_seconds: float) -> Mapping[str, Group]:
        """The breakers of each model, by its name. What is known of other models and addresses is forgotten."""
        self._limits.failures, self._limits.open_seconds = failures, open_seconds
        old, self._all = self._all, {}
        groups = {model.name: self._group(model, old) for model in models}
        self._groups = {(model.upstream.name, model.name): groups[model.name] for model in models}
        return groups

    def _group(self, model: Model, old: Mapping[tuple[str, str, Target], Breaker]) -> Group:
        targets = model.upstream.targets
        keys = [(model.upstream.name, model.name, target) for target in targets]
        for key in keys:
            self._all[key] = old.get(key) or Breaker(self._limits, self._now)
            self._all[key].at_once = AT_ONCE if len(targets) > 1 else frozenset()
        return Group(self._all[key] for key in keys)

    def why_not(self, model: Model) -> str | None:
        """Why a model should not be asked first now; None: it can be."""
        group = self._groups.get((model.upstream.name, model.name))
        return group.why_not if group is not None else None

    def each(self) -> Mapping[tuple[str, str, Target], int]:
        """(upstream, model, address) -> the state of that breaker."""
        return {where: breaker.state for where, breaker in self._all.items()}

    def states(self) -> Mapping[tuple[str, str], int]:
        """(upstream, model) -> CLOSED, HALF_OPEN or OPEN."""
        return {names: group.state for names, group in self._groups.items()}
