"""How far each budget is used, as far as this process has seen: for metrics, and one warning."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gateway.limits.demand import Wanted
from gateway.limits.store import NANO, Purse, Taken

NEAR = 0.8
"""From this share on a budget is near its end, which is said once a period."""
_MOST = 10_000
"""Budgets that are remembered; the longest unused go first."""


@dataclass(frozen=True, slots=True)
class Used:
    """One budget in its present period."""

    purse: str
    """The store's key, with the period in it."""
    usd: float
    """The whole budget."""
    share: float
    """What is spent or reserved of it; may be above 1."""


class Budgets:
    """The budgets that calls have met."""

    def __init__(self, warn: Callable[[str, str, Used], None] = lambda kind, name, used: None) -> None:
        """`warn`: told (kind, name, how far) when a budget comes near its end, and when it is spent."""
        self._warn = warn
        self._used: OrderedDict[tuple[str, str], Used] = OrderedDict()

    def note(self, wanted: Sequence[Wanted], taken: Taken) -> None:
        """What the answer to a take says of the budgets in it."""
        for one, left in zip(wanted, taken.left, strict=True):
            if isinstance(one.demand, Purse):
                capacity = one.demand.capacity
                self._put((one.scope.kind, one.scope.name), Used(one.demand.key, capacity / NANO, 1 - left / capacity))

    def _put(self, whose: tuple[str, str], used: Used) -> None:
        before = self._used.get(whose)
        known = before.share if before is not None and before.purse == used.purse else 0.0
        self._used[whose] = used
        self._used.move_to_end(whose)
        if len(self._used) > _MOST:
            self._used.popitem(last=False)
        if any(known < mark <= used.share for mark in (NEAR, 1.0)):
            self._warn(*whose, used)

    def shares(self) -> Mapping[tuple[str, ...], float]:
        """(kind, name) -> share that is used."""
        return {whose: used.share for whose, used in self._used.items()}
