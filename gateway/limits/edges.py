"""Which limits are near their edge, as the calls of this process have met them: for the operations page."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway import clock
from gateway.limits.demand import Wanted
from gateway.limits.store import NANO, Purse, Rate, Settled, Slot, Taken

MOST = 2_000
"""Limits that are remembered; the longest unused go first."""
LATELY_SECONDS = 60.0
"""A bucket is full again by then, and nobody knows how many slots are still taken."""
BUDGET_SECONDS = 3600.0


class _Met(NamedTuple):
    wanted: Wanted
    left: int
    at: float


class Edges:
    """The limits that calls have met lately. To note one costs an entry of a dictionary; all else is done on demand."""

    def __init__(self, period: float = 60.0) -> None:
        """`period`: seconds in which the store's buckets fill up."""
        self._period = period
        self._met: OrderedDict[str, _Met] = OrderedDict()

    def note(self, wanted: Sequence[Wanted], taken: Taken) -> None:
        """What the answer to a take says."""
        met, now = self._met, clock.now()
        for one, left in zip(wanted, taken.left, strict=True):
            key = one.demand.key
            met[key] = _Met(one, left, now)
            met.move_to_end(key)
        while len(met) > MOST:
            met.popitem(last=False)

    def freed(self, settled: Sequence[Settled]) -> None:
        """Slots that a call of this process has given back."""
        for one in settled:
            met = self._met.get(one.demand.key)
            if met is not None and isinstance(one.demand, Slot):
                self._met[one.demand.key] = met._replace(left=min(one.demand.capacity, met.left + 1))

    def nearest(self, most: int = 50) -> list[dict[str, Any]]:
        """The limits with the largest shares in use first; budgets in dollars."""
        now = clock.now()
        rows = [self._row(met, now) for met in self._met.values() if now - met.at < _seconds(met)]
        return sorted(rows, key=lambda row: (-row["used"], row["kind"], row["name"]))[:most]

    def _row(self, met: _Met, now: float) -> dict[str, Any]:
        scope, demand = met.wanted.scope, met.wanted.demand
        left, unit = float(met.left), NANO if isinstance(demand, Purse) else 1
        if isinstance(demand, Rate):  # it has been filling up since
            left = min(demand.capacity, left + (now - met.at) * demand.capacity / self._period)
        return {
            "kind": scope.kind,
            "name": scope.name,
            "what": met.wanted.what,
            "used": round(min(1.0, max(0.0, 1 - left / demand.capacity)), 4),
            "capacity": demand.capacity / unit,
            "left": round(max(0.0, left) / unit, 6),
        }


def _seconds(met: _Met) -> float:
    return LATELY_SECONDS if isinstance(met.wanted.demand, Rate | Slot) else BUDGET_SECONDS
