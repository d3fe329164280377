"""When the same target may be asked once more: which failures are safe to repeat, how long to wait, how often in all.

A repeated call is never the first choice: other models of the plan come before it (`walk.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from gateway.call import Attempt
from gateway.errors import CAUSES, UpstreamFailure

SAFE: Mapping[str, frozenset[int] | None] = MappingProxyType(
    {
        "connect": None,
        "rate_limit": None,
        "overloaded": frozenset({503, 529}),
        "server_error": frozenset({502}),
    }
)
"""Cause -> the statuses with which nothing was begun upstream; None: any. After a timeout or a partial answer the
first call may still run, and be billed."""

LONGEST_WAIT = 20.0
"""Seconds for a stated Retry-After; never more than half of the time that the call has left."""
BACK_OFF = (0.1, 0.4)
"""Seconds, drawn evenly and added to what the upstream stated, so that callers do not come back together."""
SHARE = 0.2
"""Repeated calls among all calls to an upstream, at most, in the long run."""
RESERVE = 10.0
"""Repeated calls that an upstream with little traffic is good for."""


class Failed(NamedTuple):
    """An attempt and how it ended."""

    attempt: Attempt
    failure: UpstreamFailure


class Chance(NamedTuple):
    """An attempt that may be made again."""

    attempt: Attempt
    wait: float
    """Seconds from now."""


class Budget:
    """How many calls to one upstream may be repeated: an outage must not double the load on what is left."""

    def __init__(self) -> None:
        self._tokens = RESERVE

    def earn(self) -> None:
        """A call is made."""
        if self._tokens < RESERVE:
            self._tokens += SHARE

    def spend(self) -> bool:
        """Take one repeated call, if there is one."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Retries:
    """The policy of one configuration, with a budget for each upstream."""

    def __init__(self, upstreams: Iterable[str], draw: Callable[[float, float], float] = random.uniform) -> None:
        self.budgets = {name: Budget() for name in upstreams}
        self._draw = draw

    def second_chance(
        self, failed: Sequence[Failed], remaining: float, elsewhere: Callable[[Attempt], bool] = lambda attempt: False
    ) -> Chance | None:
        """Which failed attempt to make again, and when, once in a call: one that another address can take at once, else
        the one with the shortest wait.

        `remaining`: seconds that the call has left; `elsewhere`: an attempt's model has an address that was not asked.
        """
        if len({f.attempt.model.name for f in failed}) < len(failed):
            return None  # one was made again already
        moved = next((f for f in failed if _the_address(f.failure) and elsewhere(f.attempt)), None)
        if moved is not None:
            return Chance(moved.attempt, 0.0) if self.budgets[moved.attempt.model.upstream.name].spend() else None
        soonest = min((f for f in failed if _safe(f.failure)), key=_stated, default=None)
        if soonest is None or _stated(soonest) > LONGEST_WAIT:
            return None
        wait = _stated(soonest) + self._draw(*BACK_OFF)
        budget = self.budgets[soonest.attempt.model.upstream.name]
        return Chance(soonest.attempt, wait) if wait <= remaining / 2 and budget.spend() else None


def _safe(failure: UpstreamFailure) -> bool:
    statuses = SAFE.get(failure.cause, frozenset())
    return statuses is None or failure.status in statuses


def _the_address(failure: UpstreamFailure) -> bool:
    """Another address may do better: as for another model, but what the gateway itself lacks."""
    return CAUSES[failure.cause].next == "yes" and failure.cause not in ("limit", "pool")


def _stated(failed: Failed) -> float:
    return failed.failure.retry_after or 0.0
