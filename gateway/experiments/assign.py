"""Assignment to an arm: a pure function of salt and unit, the same in every process and after a restart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from gateway.call import Split
from gateway.config.runtime import Experiment


def share(salt: str, unit: bytes) -> float:
    """Where a unit falls in [0, 1): SHA-256 of salt, 0x1f and unit, its first 8 bytes as a fraction."""
    digest = hashlib.sha256(salt.encode() + b"\x1f" + unit).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def assign(experiment: str, salt: str, arms: Mapping[str, float], unit: bytes) -> Split:
    """The arm whose interval holds the unit's share. Arms keep their order, so a change of weights moves only the units
    between the old and the new bounds. At least one weight is positive (the configuration sees to it)."""
    total = sum(arms.values())
    at = share(salt, unit) * total
    bound = 0.0
    chosen = ""
    for arm, weight in arms.items():
        if weight <= 0:
            continue
        chosen = arm
        bound += weight
        if at < bound:
            break
    return Split(experiment, chosen, arms[chosen] / total)


class Splits:
    """The experiments of one configuration."""

    def __init__(self, experiments: Mapping[str, Experiment]) -> None:
        self._by_route: dict[str, list[Experiment]] = {}
        for experiment in experiments.values():
            self._by_route.setdefault(experiment.route, []).append(experiment)

    def assign(self, route: str, rule: str, unit: Callable[[str], bytes]) -> Split | None:
        """The arm of the first experiment on this route that takes this rule's requests; None: no split applies."""
        for experiment in self._by_route.get(route, ()):
            if not experiment.rules or rule in experiment.rules:
                return assign(experiment.name, experiment.salt, experiment.arms, unit(experiment.unit))
        return None
