"""What Redis has yet to be told of calls that ended while it was away: slots to free, money to charge. Bounded.

Buckets are left out: they fill up by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from gateway.limits.store import Purse, Rate, Settled

_AT_ONCE = 100
"""Charges in one settlement."""


class Backlog:
    """Settlements in waiting. `most`: leases and purses kept at most. The oldest lease goes first: it expires in Redis.
    What further purses were charged only the ledger knows."""

    def __init__(self, most: int = 5_000) -> None:
        self._most = most
        self._leases: dict[tuple[str, str], Settled] = {}
        """(lease, key) -> what to do where Redis still knows of it."""
        self._charges: dict[str, Settled] = {}
        """Key of a purse -> the sum of what Redis certainly has not been told."""

    def __len__(self) -> int:
        return len(self._leases) + len(self._charges)

    def add(self, lease: str, settled: Iterable[Settled], unsure: bool) -> None:
        """Keep a settlement. `unsure`: Redis may have heard it."""
        for s in settled:
            if isinstance(s.demand, Rate):
                continue
            if isinstance(s.demand, Purse) and not (unsure and lease):
                self._charge(s.demand, s.used)
                s = replace(s, used=0)
            if lease:
                self._leases[lease, s.demand.key] = s
        while len(self._leases) > self._most:
            del self._leases[next(iter(self._leases))]

    def drain(self) -> Iterator[tuple[str, Sequence[Settled], bool]]:
        """All of it, once: (lease, settled, unsure). A charge of no lease has none."""
        leases, self._leases = self._leases, {}
        charges, self._charges = list(self._charges.values()), {}
        for (lease, _), settled in leases.items():
            yield lease, (settled,), True
        for start in range(0, len(charges), _AT_ONCE):
            yield "", charges[start : start + _AT_ONCE], False

    def _charge(self, purse: Purse, used: int) -> None:
        known = self._charges.get(purse.key)
        if used and (known is not None or len(self._charges) < self._most):
            self._charges[purse.key] = Settled(purse, 0, used + (known.used if known is not None else 0))
