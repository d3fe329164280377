"""Upstreams and replicas killed and frozen under load: what callers notice, what is wasted, how long the switch takes.

An open load through a `turnout serve` of its own: calls start at fixed times, whatever became of those before.
Upstreams are processes (standin.py). SIGKILL kills one, SIGSTOP freezes it: its kernel still takes connections and
requests.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from benchmarks.bodies import text
from benchmarks.routing.calling import Told, ask
from tests.harness import Gateway

ROOT = Path(__file__).resolve().parents[2]
FAULTS: Mapping[str, signal.Signals] = MappingProxyType({"killed": signal.SIGKILL, "frozen": signal.SIGSTOP})
RATE = 40
"""Calls a second."""
BEFORE_SECONDS, AFTER_SECONDS = 3.0, 24.0
"""Of load, around the fault; the later part is long enough for two probes of an open breaker."""
FIRST_EVENT, TOTAL, OPEN_SECONDS = 2.0, 6.0, 10.0
"""Timeouts of the gateway: short, since a frozen upstream costs a streamed call the first, a plain one the second."""
PROMPT = 600
"""Characters: enough for a home among replicas."""
CALL_SECONDS = 30.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One outage."""

    name: str
    replicas: int
    """Of the first model's upstream; the first one meets the fault. A second model has an upstream that stays well."""
    fault: str
    streams: tuple[bool, ...] = (True, False)
    """Of the calls, in turn: streamed or plain."""


CASES = (
    Case("one of two replicas killed", 2, "killed"),
    Case("one of two replicas frozen, streams", 2, "frozen", (True,)),
    Case("one of two replicas frozen, plain calls", 2, "frozen", (False,)),
    Case("whole upstream killed", 1, "killed"),
    Case("whole upstream frozen, streams", 1, "frozen", (True,)),
    Case("whole upstream frozen, plain calls", 1, "frozen", (False,)),
)


@dataclass(frozen=True, slots=True)
class StandIn:
    """A running upstream."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def calls(self) -> int:
        """Those that have reached it."""
        return self.log.read_text().count("call\n")


@contextmanager
def stand_in(folder: Path, number: int) -> Iterator[StandIn]:
    """An upstream, killed at exit."""
    log = folder / f"upstream-{number}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.routing.standin"], cwd=ROOT, stdout=output, text=True
        )
    try:
        yield StandIn(_url(log), process, log)
    finally:
        process.kill()
        process.wait()


def _url(log: Path) -> str:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if "\n" in (said := log.read_text()):
            return said.partition("\n")[0]
        time.sleep(0.02)
    raise TimeoutError("an upstream does not start")


def configuration(first: Sequence[str], other: str) -> dict[str, Any]:
    """A route with a fallback, the breaker as it is by default."""
    return {
        "version": 1,
        "gateway": {"timeouts": {"connect": 1, "first_event": FIRST_EVENT, "total": TOTAL}},
        "upstreams": {"first": {"base_url": list(first)}, "other": {"base_url": other}},
        "models": {"m": {"upstream": "first", "model": "fake"}, "spare": {"upstream": "other", "model": "fake"}},
        "routes": {"auto": {"default": "m", "fallback": ["spare"]}},
    }


@dataclass(frozen=True, slots=True)
class Figures:
    """What became of one outage."""

    calls: int
    failed: int
    """Callers that got an error although nothing had been sent to them, and there was time for another attempt."""
    out_of_time: int
    """The same, where the one attempt had taken all of the call's time."""
    broken: int
    """Streams that had begun when their upstream died."""
    waiting: int
    """Calls that waited for their first content at the fault, on whichever upstream."""
    wasted: int
    """Upstream calls, begun after the fault, that brought nothing; probes left out."""
    probes: int
    """The same, once the breaker had opened."""
    switch_ms: float | None
    """From the fault to the start of the last call that wasted one, probes left out; None: there was none."""
    received: int
    """Calls sent after the fault that a frozen upstream found in its sockets when it was thawed: what the gateway says
    of wasted calls and probes, seen from the other side."""
    slowest_ms: float
    """The longest that any call took."""


def figures(told: Sequence[Told], fault: float, received: int) -> Figures:
    """What the callers saw, summed up. Pure."""
    outcomes = Counter(answer.outcome for answer in told)
    out_of_time = sum(a.outcome == "failed" and a.ended - a.started >= TOTAL for a in told)
    later = sorted((a for a in told if a.started >= fault and a.wasted), key=lambda a: a.started)
    split = _first_pause(later)
    return Figures(
        calls=len(told),
        failed=outcomes["failed"] - out_of_time,
        out_of_time=out_of_time,
        broken=outcomes["broken"],
        waiting=sum(a.started < fault < (a.first or a.ended) for a in told),
        wasted=sum(a.wasted for a in later[:split]),
        probes=sum(a.wasted for a in later[split:]),
        switch_ms=round((later[split - 1].started - fault) * 1e3, 1) if split else None,
        received=received,
        slowest_ms=round(max(a.ended - a.started for a in told) * 1e3, 1),
    )


def _first_pause(later: Sequence[Told]) -> int:
    """How many calls come before the first pause that only an open breaker can have made."""
    pause = (n for n, (a, b) in enumerate(pairwise(later), 1) if b.started - a.started > OPEN_SECONDS / 2)
    return next(pause, len(later))


async def load(url: str, streams: Sequence[bool], seconds: float) -> list[Told]:
    """Calls at fixed times, all awaited."""
    loop, began = asyncio.get_running_loop(), time.monotonic()
    calls = []
    for number in range(round(seconds * RATE)):
        await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
        message = {"role": "user", "content": f"{number} {text(PROMPT)}"}
        body = {"model": "auto", "stream": streams[number % len(streams)], "messages": [message]}
        calls.append(loop.create_task(ask(url, body, CALL_SECONDS)))
    return await asyncio.gather(*calls)


async def strike(victim: StandIn, fault: str) -> tuple[float, int]:
    """Does the damage once the load has run for a while; when that was, and the calls that had reached it."""
    await asyncio.sleep(BEFORE_SECONDS)
    victim.process.send_signal(FAULTS[fault])
    return time.monotonic(), victim.calls


async def thawed(victim: StandIn) -> int:
    """How many calls have reached an upstream once it has read all that waited for it."""
    victim.process.send_signal(signal.SIGCONT)
    await asyncio.sleep(1)
    return victim.calls


async def outage(case: Case) -> Figures:
    """One outage from start to end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="turnout-bench-")))
        *first, other = [stack.enter_context(stand_in(folder, n)) for n in range(case.replicas + 1)]
        config = configuration([replica.url for replica in first], other.url)
        # This checkout's gateway, wherever the environment's own comes from.
        async with Gateway(config, {"PYTHONPATH": str(ROOT)}) as gateway:
            await load(gateway.url, case.streams, 0.5)
            told, (fault, before) = await asyncio.gather(
                load(gateway.url, case.streams, BEFORE_SECONDS + AFTER_SECONDS), strike(first[0], case.fault)
            )
        return figures(told, fault, await thawed(first[0]) - before)


def run(rounds: int, say: Say) -> dict[str, Any]:
    """All cases, half a minute each."""
    found: dict[str, list[Figures]] = {case.name: [] for case in CASES}
    for number in range(rounds):
        for case in CASES:
            got = asyncio.run(outage(case))
            found[case.name].append(got)
            say(f"round {number + 1}/{rounds}  {case.name:40} {got}")
    return {
        "rounds": rounds,
        "settings": {
            "calls a second": RATE,
            "seconds before and after": [BEFORE_SECONDS, AFTER_SECONDS],
            "timeouts": {"first_event": FIRST_EVENT, "total": TOTAL},
            "breaker": {"failures": 5, "open_seconds": OPEN_SECONDS},
        },
        "rows": [summary(name, samples) for name, samples in found.items()],
    }


def summary(name: str, samples: Sequence[Figures]) -> dict[str, Any]:
    """Calls, failed and broken ones are sums, of the others the median counts."""
    sums = {
        field: sum(getattr(one, field) for one in samples) for field in ("calls", "failed", "out_of_time", "broken")
    }
    middles = {
        field: median(getattr(one, field) for one in samples) for field in ("waiting", "wasted", "probes", "received")
    }
    switches = [one.switch_ms for one in samples if one.switch_ms is not None]
    return {
        "case": name,
        **sums,
        **middles,
        "switch_ms": median(switches) if switches else None,
        "slowest_ms": max(one.slowest_ms for one in samples),
        "samples": [asdict(one) for one in samples],
    }
