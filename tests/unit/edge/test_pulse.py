"""One timer looks at everything that is watched, and runs only while something is."""

from __future__ import annotations

import asyncio

from gateway import clock
from gateway.edge.pulse import Patience, Pulse

QUICK = Patience(ping=0.02, body=1.0, stall=1.0)


class Seen:
    """Ends by itself after some looks."""

    def __init__(self, pulse: Pulse, looks: int) -> None:
        self.pulse = pulse
        self.left = looks
        self.times: list[float] = []
        self.patience: Patience | None = None
        self.done = asyncio.Event()

    def look(self, now: float, patience: Patience) -> None:
        self.times.append(now)
        self.patience = patience
        self.left -= 1
        if not self.left:
            self.pulse.remove(self)
            self.done.set()


async def test_everything_watched_is_looked_at() -> None:
    pulse = Pulse(QUICK)
    begun = clock.now()
    watched = [Seen(pulse, 2), Seen(pulse, 3)]
    for seen in watched:
        pulse.add(seen)
    async with asyncio.timeout(10):
        await asyncio.gather(*(seen.done.wait() for seen in watched))
    assert [len(seen.times) for seen in watched] == [2, 3]
    assert all(begun < time <= clock.now() for seen in watched for time in seen.times)
    assert watched[0].patience is QUICK


async def test_it_starts_again() -> None:
    pulse = Pulse(QUICK)
    async with asyncio.timeout(10):
        for _ in range(2):
            seen = Seen(pulse, 1)
            pulse.add(seen)
            await seen.done.wait()
            await asyncio.sleep(0)


async def test_removing_twice_does_no_harm() -> None:
    pulse = Pulse(QUICK)
    seen = Seen(pulse, 1)
    pulse.add(seen)
    pulse.remove(seen)
    pulse.remove(seen)
    other = Seen(pulse, 1)
    pulse.add(other)
    async with asyncio.timeout(10):
        await other.done.wait()
    assert seen.times == []
