"""One replica's part of each limit while there is nobody to share them through."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.limits.store import Demand, Purse, Rate, Slot


class Share:
    """The parts during one outage. `replicas`: how many divide a limit among them; a part is rounded down, but at least
    1. `spent`: key of a purse -> nano-dollars that were last seen to be spent or reserved there."""

    def __init__(self, replicas: int, spent: Mapping[str, int], number: int) -> None:
        self._replicas = replicas
        self._spent = spent
        self._number = number
        self._floors: dict[str, int] = {}

    def of(self, demand: Demand) -> Demand:
        """What to ask of this replica's own store."""
        if isinstance(demand, Purse):
            return self._purse(demand)
        part = max(1, demand.capacity // self._replicas)
        if isinstance(demand, Slot):
            return Slot(demand.key, part)
        # A call that fits the limit but not the part takes all of that; its settlement puts the bucket into debt.
        return Rate(demand.key, part, demand.cost if demand.cost > demand.capacity else min(demand.cost, part))

    def _purse(self, purse: Purse) -> Purse:
        """What is left is divided as it stood when the outage began: later the ledger knows of some, not of all."""
        floor = self._floors.setdefault(purse.key, max(purse.floor, self._spent.get(purse.key, 0)))
        part = max(0, purse.capacity - floor) // self._replicas
        return Purse(f"{purse.key}#{self._number}", floor + part, purse.cost, floor, purse.seconds)
