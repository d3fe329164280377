"""What a plan costs: the micro benchmark of the same name (benchmarks/micro/planning.py), as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from benchmarks.micro.planning import cases
from benchmarks.micro.timing import nanoseconds

Say = Callable[[str], None]


def run(rounds: int, say: Say) -> dict[str, Any]:
    """Microseconds of a plan by rules and prompt, the least of all rounds."""
    found: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for label, call in cases():
            found[label].append(round(nanoseconds(call, repeats=5) / 1e3, 1))
            say(f"round {number + 1}/{rounds}  {label:60} {found[label][-1]:10,.1f} us")
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for label, times in found.items():
        kind, rules, prompt = label.split("; ")
        row = rows.setdefault((kind, rules), {"rules ask for": kind, "rules": rules.removesuffix(" rules")})
        row[prompt] = min(times)
    return {"rounds": rounds, "rows": list(rows.values()), "samples": dict(found)}
