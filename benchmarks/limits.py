"""CPU that limits cost a call, take and settlement together, in memory and in Redis: `python -m benchmarks.limits`.

Starts a redis-server of its own. Prints microseconds of this process and of Redis; `--json` the same for programs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import uvloop

from gateway.config.redis_url import Address
from gateway.limits.memory import MemoryStore
from gateway.limits.redis import RedisStore
from gateway.limits.store import NANO, Demand, Purse, Rate, Settled, Slot, Store
from tests.fakes.redis import RedisServer

KEY: tuple[Demand, ...] = (Slot("k:slots", 64), Rate("k:requests", 10**9, 1), Rate("k:tokens", 10**9, 900))
BUDGET = Purse("k:usd", 10**6 * NANO, 10**6, 0, 86_400)
TEAM: tuple[Demand, ...] = (Slot("t:slots", 64), Rate("t:requests", 10**9, 1), Rate("t:tokens", 10**9, 900))
CASES: Mapping[str, tuple[Demand, ...]] = {"a key": KEY, "key, team and budget": (*KEY, *TEAM, BUDGET)}


@dataclass(frozen=True)
class Cost:
    """Microseconds of CPU for each call."""

    store: str
    demands: str
    in_flight: int
    gateway: float
    redis: float


async def calls(store: Store, demands: Sequence[Demand], count: int, name: str) -> None:
    """So many calls, one after the other."""
    for number in range(count):
        lease = f"{name}-{number}"
        taken = await store.take(lease, demands)
        assert taken.refused is None
        # As the limiter does: tokens and money were used in part, requests as reserved, which needs no word.
        settled = zip(demands, taken.reserved, strict=True)
        store.settle(lease, [Settled(d, r, r // 2) for d, r in settled if not (isinstance(d, Rate) and d.cost == 1)])


async def measure(store: Store, demands: Sequence[Demand], in_flight: int, count: int, server: RedisServer) -> Cost:
    """Mean over `count` calls, `in_flight` at a time."""
    await calls(store, demands, 500, "warm")
    redis, began = redis_seconds(server), time.process_time()
    await asyncio.gather(*(calls(store, demands, count // in_flight, str(n)) for n in range(in_flight)))
    own = time.process_time() - began
    took = redis_seconds(server) - redis
    return Cost("", "", in_flight, own / count * 1e6, took / count * 1e6)


def redis_seconds(server: RedisServer) -> float:
    """CPU that the server has used."""
    lines = dict(line.split(":", 1) for line in server.ask("INFO", "cpu").splitlines() if ":" in line)
    return float(lines["used_cpu_sys"]) + float(lines["used_cpu_user"])


async def results(server: RedisServer, count: int) -> list[Cost]:
    """All cases, memory first."""
    redis = RedisStore(Address.parse(server.url), answer=10.0)
    await redis.connect()
    stores: Mapping[str, Store] = {"memory": MemoryStore(), "redis": redis}
    costs = []
    for name, store in stores.items():
        for label, demands in CASES.items():
            for in_flight in (1, 16):
                cost = await measure(store, demands, in_flight, count, server)
                costs.append(Cost(name, label, in_flight, round(cost.gateway, 1), round(cost.redis, 1)))
    await redis.finish()
    redis.close()
    return costs


def lines(costs: Sequence[Cost]) -> Iterator[str]:
    """A table."""
    yield f"{'store':8} {'demands':22} {'in flight':>9} {'gateway us':>11} {'redis us':>9}"
    for c in costs:
        yield f"{c.store:8} {c.demands:22} {c.in_flight:9} {c.gateway:11.1f} {c.redis:9.1f}"


def main(argv: Sequence[str]) -> int:
    """Runs all cases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits")
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    with RedisServer() as server:
        costs = uvloop.run(results(server, options.calls))
    print(json.dumps([asdict(c) for c in costs]) if options.json else "\n".join(lines(costs)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
