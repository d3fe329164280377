"""How long the alarm takes, by simulation: `python -m gateway.alarm.simulate`."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from gateway.alarm.alarm import Alarm
from gateway.alarm.observation import Observation, Settings

TASKS = (0.85, 0.6, 0.4)
"""Acceptance of a draft token, given that those before it were accepted, in three tasks that are mixed evenly."""
CONCENTRATION = 12.0
"""Of the beta distribution that a call's own acceptance is drawn from: at 0.6 a standard deviation of 0.14."""
STEPS = (5, 200)
"""Draft tokens of a call, from and to."""
POOL = 1_000
"""Calls that a run draws from."""
HEALTHY = 300
"""Calls before the change."""
LIMIT = 3_000
"""Calls after it, until a run is given up."""
NEVER = LIMIT + 1
WITHIN = 1_000
"""Calls after the change within which a run counts as found."""


def drafted(chance: random.Random, depth: int, accept: float, loss: float = 0.0) -> Observation:
    """One call with drafts of `depth` tokens, `loss` of whose acceptance is lost."""
    own = chance.betavariate(accept * CONCENTRATION, (1 - accept) * CONCENTRATION)
    histogram = [0] * (depth + 1)
    for _ in range(max(chance.randint(*STEPS) // depth, 1)):
        taken = 0
        if chance.random() >= loss:
            while taken < depth and chance.random() < own:
                taken += 1
        histogram[taken] += 1
    steps = sum(histogram)
    accepted = sum(i * n for i, n in enumerate(histogram))
    return Observation("text", steps, steps * depth, accepted, tuple(histogram))


def acceptance(chance: random.Random, loss: float, tasks: Sequence[float] = TASKS) -> list[Observation]:
    """Calls of a mix of tasks, in no order, all with drafts of one depth."""
    depth = chance.randint(1, 4)
    return [drafted(chance, depth, chance.choice(tasks), loss) for _ in range(POOL)]


def flaws(name: str, share: float) -> list[Observation]:
    """Tool calls of which this share has the flaw."""
    bad = round(share * POOL)
    return [Observation("tool", **{name: i < bad}) for i in range(POOL)]  # type: ignore[arg-type]


class Scenario(NamedTuple):
    """A change, and how it shows."""

    name: str
    figure: str
    """`loss` of acceptance, or the flaw."""
    before: float
    after: float

    def calls(self, chance: random.Random) -> Iterator[Observation]:
        """HEALTHY calls (none if it was never healthy), then LIMIT changed ones."""
        if self.figure == "loss":
            state = chance.getstate()
            healthy = acceptance(chance, self.before)
            chance.setstate(state)  # the same depth of drafts
            changed = acceptance(chance, self.after)
        else:
            healthy, changed = flaws(self.figure, self.before), flaws(self.figure, self.after)
        yield from chance.choices(healthy, k=HEALTHY if self.before < self.after else 0)
        yield from chance.choices(changed, k=LIMIT)


SCENARIOS = (
    Scenario("collapse: nothing is accepted any more", "loss", 0.0, 1.0),
    Scenario("broken from the first call on, 1 % accepted", "loss", 0.99, 0.99),
    Scenario("acceptance down by 30 %", "loss", 0.0, 0.3),
    Scenario("acceptance down by 40 %", "loss", 0.0, 0.4),
    Scenario("acceptance down by 50 %", "loss", 0.0, 0.5),
    Scenario("20 % of tool calls stall", "stalled", 0.002, 0.2),
    Scenario("50 % of tool calls stall", "stalled", 0.002, 0.5),
    Scenario("10 % of answers break their grammar", "rejected", 0.002, 0.1),
    Scenario("30 % of answers break their grammar", "rejected", 0.002, 0.3),
)


def delay(scenario: Scenario, seed: int) -> int:
    """Calls from the change to the alarm, at least 1; NEVER: it did not come. Below 1: it came before the change."""
    alarm = Alarm(Settings())
    start = HEALTHY if scenario.before < scenario.after else 0
    calls = scenario.calls(random.Random(seed))
    return next((n - start for n, call in enumerate(calls, 1) if alarm.observe(call)), NEVER)


def shown(delays: Sequence[int]) -> tuple[str, ...]:
    """One row: median, 95 %, worst, share found within WITHIN calls, false alarms."""
    true = sorted(found for found in delays if found >= 1)
    false = len(delays) - len(true)
    if not true:
        return "-", "-", "-", "-", str(false)
    worst = true[-1]
    share = sum(found <= WITHIN for found in true) / len(true)
    figures = (median(true), true[int(0.95 * (len(true) - 1))], worst)
    return (*(f"{figure:,.0f}" if figure <= LIMIT else "never" for figure in figures), f"{share:.0%}", str(false))


def table(runs: int) -> Table:
    """How long each scenario takes."""
    made = Table(
        *("change", "median", "95 %", "worst", f"found in {WITHIN:,}", "false alarms"),
        title=f"calls until the alarm, {runs} runs",
    )
    for scenario in SCENARIOS:
        made.add_row(scenario.name, *shown([delay(scenario, seed) for seed in range(runs)]))
    return made


if __name__ == "__main__":
    Console().print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
