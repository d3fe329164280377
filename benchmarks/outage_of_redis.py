"""What callers see while Redis is killed, frozen and restarted under load: `python -m benchmarks.outage_of_redis`.

Two `turnout serve` processes share a limit through one redis-server, and callers ask both at a steady rate, far above
it. For each phase: calls, how many were admitted, how long they took; at the end admitted calls against the bound of
docs/guides/limits.md for `share`: limit x (minutes + 1 + changes).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from gateway import clock
from tests.fakes import Upstream
from tests.fakes.redis import RedisServer
from tests.harness import Gateway, config_for

LIMIT = 120
"""Requests a minute."""
RATE = 20.0
"""Calls a second."""
SECONDS = 8.0
"""Of each phase."""


@dataclass
class Phase:
    """One condition of Redis."""

    name: str
    milliseconds: list[float] = field(default_factory=list)
    admitted: int = 0
    refused: int = 0
    failed: int = 0

    def share(self, part: float) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


async def ask(gateway: Gateway, phase: Phase) -> None:
    began = clock.now()
    status = (await gateway.chat()).status
    phase.milliseconds.append((clock.now() - began) * 1000)
    phase.admitted += status == 200
    phase.refused += status == 429
    phase.failed += status not in (200, 429)


async def load(gateways: list[Gateway], phase: Phase) -> None:
    """Calls that begin at fixed times, whatever becomes of the ones before."""
    start, running = clock.now(), []
    for number in range(int(RATE * SECONDS)):
        await asyncio.sleep(max(0.0, start + number / RATE - clock.now()))
        running.append(asyncio.create_task(ask(gateways[number % len(gateways)], phase)))
    await asyncio.gather(*running)


async def measure() -> tuple[list[Phase], float, int]:
    phases: list[Phase] = []
    with RedisServer() as redis:
        steps: list[tuple[str, Callable[[], object]]] = [
            ("up", lambda: None),
            ("frozen", redis.freeze),
            ("thawed", redis.thaw),
            ("killed", redis.stop),
            ("started again, empty", redis.start),
        ]
        async with Upstream() as upstream:
            config = config_for(
                upstream, gateway={"redis_url": redis.url}, limits={"default": {"requests_per_minute": LIMIT}}
            )
            async with Gateway(config) as one, Gateway(config) as two:
                began = clock.now()
                for name, change in steps:
                    await asyncio.to_thread(change)
                    phases.append(Phase(name))
                    await load([one, two], phases[-1])
                minutes = (clock.now() - began) / 60
    return phases, minutes, len(steps) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    phases, minutes, changes = asyncio.run(measure())
    admitted, bound = sum(p.admitted for p in phases), LIMIT * (minutes + 1 + changes)
    if as_json:
        json.dump({"phases": [asdict(p) for p in phases], "admitted": admitted, "bound": bound}, sys.stdout)
        return
    table = Table(title=f"{RATE:g} calls/s on two gateways, {LIMIT} requests a minute, share")
    for name in ("Redis", "calls", "admitted", "refused", "failed", "p50 ms", "p99 ms", "max ms"):
        table.add_column(name, justify="left" if name == "Redis" else "right")
    for p in phases:
        times = (f"{p.share(part):.1f}" for part in (0.5, 0.99, 1))
        table.add_row(p.name, *map(str, (len(p.milliseconds), p.admitted, p.refused, p.failed)), *times)
    console = Console()
    console.print(table)
    console.print(f"admitted {admitted} in {minutes:.2f} minutes; the bound with {changes} changes is {bound:.0f}")
    console.print(f"without any trouble it would be {LIMIT * (minutes + 1):.0f}")


if __name__ == "__main__":
    main()
